"""Nightly portraits, counted by hand."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import Any

from analytics.portraits import changed, compute
from tests.analytics.conftest import NOON, House, at, entry, moment

DAY = NOON.date()
NIGHT = moment(86_400)


def selection(seconds: float, *picks: str, ranked: bool = True) -> dict[str, Any]:
    candidates = [{"skill_id": skill} for skill in ("a", "b", "c")]
    return {"type": "selection", "event_id": f"s{seconds}", "time": at(seconds), "ranked": ranked,
            "candidates": candidates, "picks": list(picks)}  # fmt: skip


def call(
    seconds: float, skill: str, ok: bool | None, kind: str | None = None, ms: float | None = None
) -> dict[str, Any]:
    return {"type": "call", "event_id": f"c{seconds}", "time": at(seconds), "skill_id": skill, "ok": ok,
            "error_kind": kind, "latency_ms": ms, "selection_id": "s0"}  # fmt: skip


def portrait(house: House, skill: str) -> dict[str, Any]:
    frame = compute(house.connect(), "default", [DAY], NIGHT)
    (row,) = (row for row in frame.iter_rows(named=True) if row["skill_id"] == skill)
    return row


def test_a_day_is_counted(house: House) -> None:
    house.write(*(entry(skill) for skill in ("a", "b", "c")))
    house.events(selection(0, "b"), selection(1, "a"), selection(2, "b", "c"), selection(3))
    house.events(selection(4, "c", ranked=False))
    house.events(call(10, "b", True, ms=100), call(11, "b", False, "timeout", 300), call(12, "b", False, "timeout"))
    house.events(call(13, "b", False, "cancelled"), call(14, "b", None), call(15, "b", True, ms=-5))
    b = portrait(house, "b")
    assert (b["impressions"], b["picks"], b["skips"]) == (5, 2, 0)
    assert (b["calls"], b["finished"], b["failed"]) == (6, 5, 3)
    assert json.loads(b["error_kinds"]) == {"cancelled": 1, "timeout": 2}
    assert (b["latency_mean_ms"], b["latency_p99_ms"]) == (200, 298)
    # `a` was passed over for `b` twice and for `c` once; `b` for nobody: a fixed menu says nothing.
    assert json.loads(b["confused_with"]) == [{"skill_id": "a", "lost": 0, "won": 2}]
    a = portrait(house, "a")
    assert (a["picks"], a["skips"]) == (1, 2)
    assert json.loads(a["confused_with"]) == [
        {"skill_id": "b", "lost": 2, "won": 0},
        {"skill_id": "c", "lost": 1, "won": 0},
    ]


def test_a_call_by_name_belongs_to_its_entry(house: House) -> None:
    house.write(entry("server/a", name="a"))
    house.events(call(0, "a", True))
    assert portrait(house, "server/a")["calls"] == 1


def test_an_offer_by_name_belongs_to_its_entry_and_a_final_answer_is_none(house: House) -> None:
    house.write(entry("server/a", name="a"), entry("b"), entry("c"))
    trace = {"trace_id": "a" * 32}
    house.events(selection(0, "b") | trace, call(1, "b", True) | trace, selection(2, ranked=False) | trace)
    # `a` was offered as such, and passed over for b; what came after b was called decided nothing.
    a = portrait(house, "server/a")
    assert (a["impressions"], a["skips"]) == (1, 1)
    assert json.loads(a["confused_with"]) == [{"skill_id": "b", "lost": 1, "won": 0}]
    assert portrait(house, "b")["impressions"] == 1


def test_only_what_changed_is_written_again(house: House) -> None:
    house.write(*(entry(skill) for skill in ("a", "b", "c")))
    house.events(selection(0, "a"), call(1, "a", True, ms=3))
    first = changed(house.connect(), "default", [DAY], NIGHT, NIGHT)
    assert first["skill_id"].to_list() == ["a", "b", "c"]
    house.lake.append("portraits", first)
    assert changed(house.connect(), "default", [DAY], NIGHT, NIGHT).height == 0
    house.events(call(2, "a", False, "timeout", 5))
    later = changed(house.connect(), "default", [DAY], NIGHT, NIGHT + timedelta(hours=1))
    assert later["skill_id"].to_list() == ["a"]
    house.lake.append("portraits", later)
    stored = house.row("select * from portraits where skill_id = 'a'")
    assert (stored["calls"], stored["failed"], stored["computed_at"]) == (2, 1, NIGHT + timedelta(hours=1))


def test_a_skill_that_left_a_day_gets_zeros(house: House) -> None:
    house.events(call(0, "a", True))
    rows = changed(house.connect(), "default", [DAY], NIGHT, NIGHT)
    house.lake.append("portraits", rows.with_columns(skill_id=rows["skill_id"] + "-gone"))
    found = {
        row["skill_id"]: row["calls"] for row in changed(house.connect(), "default", [DAY], NIGHT, NIGHT).to_dicts()
    }
    assert found == {"a": 1, "a-gone": 0}


def test_days_and_projects_are_apart(house: House) -> None:
    house.events(call(0, "a", True), call(86_400, "a", True))
    house.events(call(1, "a", True), project="other")
    days = [DAY, date(2026, 3, 3)]
    frame = compute(house.connect(), "default", days, moment(3 * 86_400))
    assert frame.select("date", "calls").rows() == [(days[0], 1), (days[1], 1)]
    assert compute(house.connect(), "default", days, moment(10)).height == 1


def test_the_published_trajectories_add_up(livemcp: House) -> None:
    days = [day for (day,) in livemcp.connect().execute("select distinct time::date from selections").fetchall()]
    days += [day for (day,) in livemcp.connect().execute("select distinct time::date from calls").fetchall()]
    frame = compute(livemcp.connect(), "default", sorted(set(days)), NOON)
    assert frame["calls"].sum() == 531
    assert frame["failed"].sum() == 118
