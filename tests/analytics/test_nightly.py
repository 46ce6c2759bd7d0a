"""The nightly job over real tables: what it does, that repeating changes nothing, and that it runs alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from analytics import nightly
from analytics.status import current_status
from collector.control import Control, JobRunning
from pickwise.settings import Settings
from tests.analytics.conftest import House, entry
from tests.analytics.receiver import Receiver

DAY_1 = datetime(2026, 3, 2, tzinfo=UTC)


def day(number: float) -> datetime:
    """Midnight at which the day of that number starts, from 1."""
    return DAY_1 + timedelta(days=number - 1)


def calls(
    start: datetime, good: int = 0, bad: int = 0, skill: str = "a", kind: str = "tool_error"
) -> list[dict[str, Any]]:
    return [
        {
            "type": "call",
            "event_id": f"{skill}-{start.isoformat()}-{i}",
            "time": (start + timedelta(minutes=i)).isoformat(),
            "skill_id": skill,
            "ok": i >= bad,
            "error_kind": kind if i < bad else None,
        }
        for i in range(good + bad)
    ]


def run(house: House, now: datetime, **options: Any) -> dict[str, Any]:
    result = nightly.run(house.folder, Settings(data_dir=house.folder), now=now, **options)
    found: dict[str, Any] = result["projects"].get("default", {})
    return found


def changes(house: House) -> list[tuple[str, str, str]]:
    query = "select skill_id, status, reason from skill_status order by time, skill_id"
    return [(row["skill_id"], row["status"], row["reason"]) for row in house.rows(query)]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().serving() as found:
        yield found


def test_a_failing_skill_is_flagged_told_and_recovers(house: House, receiver: Receiver) -> None:
    settings = Settings(data_dir=house.folder, webhook_urls=[receiver.url])
    house.write(entry("a"), entry("b"))
    house.events(*calls(day(1), bad=20, kind="invalid_arguments"), *calls(day(1), good=30, skill="b"))
    lines: list[str] = []
    result = nightly.run(house.folder, settings, now=day(2.1), progress=lines.append)["projects"]["default"]
    assert [(c["skill_id"], c["status"], c["reason"]) for c in result["status_changes"]] == [
        ("a", "degraded", "arguments")
    ]
    assert any("a: active -> degraded (arguments, rollout 0.1)" in line for line in lines)
    row = house.row("select * from skill_status")
    assert row["time"] == day(2) - timedelta(microseconds=1)
    evidence = json.loads(row["evidence"])
    assert (evidence["calls"], evidence["successes"], evidence["kinds"]) == (20, 0, {"invalid_arguments": 20})
    assert result["status_changes"][0]["evidence"] == evidence
    assert evidence["window"] == {"from": "2026-02-24T00:00:00Z", "to": "2026-03-03T00:00:00Z"}
    status = {s["skill_id"]: s for s in current_status(house.connect(), "default", day(2.1)).to_dicts()}
    assert (status["a"]["status"], status["a"]["rollout_fraction"], status["b"]["status"]) == (
        "degraded",
        0.1,
        "active",
    )

    house.events(*calls(day(2.2), good=20))
    nightly.run(house.folder, settings, now=day(3.1))
    assert changes(house) == [("a", "degraded", "arguments"), ("a", "active", "recovered")]
    alerts = house.rows("select rule, grp, state, started_at from alerts order by time")
    assert [(a["rule"], a["grp"], a["state"]) for a in alerts] == [
        ("skill_status", "a", "firing"),
        ("skill_status", "a", "resolved"),
    ]
    assert alerts[0]["started_at"] == alerts[1]["started_at"]
    assert [post["state"] for post in receiver.taken] == ["firing", "resolved"]


def test_today_is_judged_up_to_now(house: House) -> None:
    house.events(*calls(day(1), bad=30))
    assert run(house, day(1) + timedelta(minutes=19))["status_changes"] == []
    (change,) = run(house, day(1) + timedelta(minutes=20))["status_changes"]
    assert change["time"] < (day(1) + timedelta(minutes=20)).isoformat()


def test_running_twice_changes_nothing(house: House) -> None:
    house.write(entry("a"), entry("later", day(2), seq=1))
    house.events(*calls(day(1), bad=20), *calls(day(2), good=5, bad=5, skill="later"))
    asked = {"type": "selection", "session_id": "s", "query": "weather in Paris", "candidates": [{"skill_id": "a"}]}
    house.events(*(asked | {"event_id": f"q{i}", "time": (day(1) + timedelta(seconds=i)).isoformat()} for i in (0, 60)))
    now = day(5.5)
    first = run(house, now)
    assert first["portraits"] > 0
    assert first["feedback"] == 1
    versions = house.lake.versions()
    again = run(house, now)
    assert (again["portraits"], again["feedback"], again["status_changes"]) == (0, 0, [])
    assert again["days"] == [now.date().isoformat()]
    for number in range(1, 6):
        one = run(house, now, date=day(number).date())
        assert (one["portraits"], one["feedback"], one["status_changes"]) == (0, 0, []), number
    assert house.lake.versions() == versions


def test_missed_nights_are_caught_up_day_by_day(house: House) -> None:
    """A skill that failed, recovered and failed again while nothing ran has all its changes."""
    house.events(*calls(day(1), good=30))
    run(house, day(1.9))
    house.events(*calls(day(2), bad=40), *calls(day(3), good=60), *calls(day(4), bad=60))
    result = run(house, day(6.1))
    assert [c[1:] for c in changes(house)] == [("degraded", "surge"), ("active", "recovered"), ("degraded", "failing")]
    assert result["days"] == [day(number).date().isoformat() for number in (1, 2, 3, 4, 5, 6)]
    assert house.row("select count(*) as n from portraits")["n"] == 4


def test_caught_up_is_the_same_as_night_by_night(house: House, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = House(tmp_path_factory.mktemp("other"))
    for found in (house, other):
        found.write(entry("a"), entry("new", day(2.5), seq=1))
    for number in range(1, 6):
        facts = calls(day(number), good=number * 3 % 11, bad=number * 7 % 25)
        facts += calls(day(number) + timedelta(hours=9), good=4, bad=number % 3, skill="new") if number > 2 else []
        house.events(*facts)
        other.events(*facts)
        run(house, day(number + 1))
    run(other, day(6))
    assert changes(house)
    assert changes(house) == changes(other)


def test_facts_that_come_late_are_looked_at_again(house: House) -> None:
    house.events(*calls(day(1), good=3))
    run(house, day(3))
    house.events(*calls(day(1) + timedelta(hours=5), good=2))
    assert run(house, day(3.5))["days"] == ["2026-03-02", "2026-03-04"]
    assert house.row("select calls from portraits")["calls"] == 5
    assert run(house, day(3.6))["days"] == ["2026-03-04"]


def test_a_surge_ebbs_without_any_new_fact(house: House) -> None:
    house.events(*calls(day(1), good=7, bad=13))
    run(house, day(9))
    assert [c[1:] for c in changes(house)] == [("degraded", "surge"), ("active", "surge_over")]
    rows = house.rows("select time from skill_status order by time")
    assert rows[1]["time"] == day(4) - timedelta(microseconds=1)


def test_a_new_skill_opens_up_and_ends_its_observation(house: House) -> None:
    house.write(entry("a"), entry("new", day(1), seq=1))
    for number in range(1, 10):
        run(house, day(number))
    rows = house.rows("select status, rollout_fraction from skill_status where skill_id = 'new' order by time")
    assert [row["rollout_fraction"] for row in rows] == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert [row["status"] for row in rows] == ["observation"] * 5 + ["active"]
    alerts = house.rows("select state, severity from alerts order by time")
    assert [(a["state"], a["severity"]) for a in alerts] == [("firing", "info"), ("resolved", "info")]


def test_old_history_is_recorded_but_calls_nobody(house: House, receiver: Receiver) -> None:
    house.events(*calls(day(1), bad=20))
    nightly.run(house.folder, Settings(data_dir=house.folder, webhook_urls=[receiver.url]), now=day(300))
    assert changes(house)[0][1:] == ("degraded", "failing")
    assert house.row("select count(*) as n from alerts where rule = 'skill_status'")["n"] == len(changes(house))
    assert receiver.posts == []


def test_alerts_of_a_run_that_died_are_raised_by_the_next(house: House) -> None:
    house.events(*calls(day(1), bad=20))
    run(house, day(2))
    before = house.lake.read("alerts").height
    other = House(house.folder.parent / "died")
    other.events(*calls(day(1), bad=20))
    # The rows are there, and nothing after them happened.
    other.lake.append("skill_status", house.lake.read("skill_status"))
    assert run(other, day(2))["status_changes"] == []
    assert other.lake.read("alerts").height == before == 1


def test_projects_run_apart_and_all_by_default(house: House) -> None:
    house.events(*calls(day(1), bad=20), project="one")
    house.events(*calls(day(1), good=20), project="two")
    result = nightly.run(house.folder, Settings(data_dir=house.folder), now=day(2))
    assert {name: len(found["status_changes"]) for name, found in result["projects"].items()} == {"one": 1, "two": 0}
    assert list(nightly.run(house.folder, Settings(), now=day(2), project="two")["projects"]) == ["two"]


def test_an_empty_folder_is_no_error(house: House) -> None:
    assert nightly.run(house.folder, Settings(data_dir=house.folder), now=day(1))["projects"] == {}


@pytest.mark.parametrize("asked", [date(2026, 3, 3), date(9999, 12, 31), date(1969, 12, 31), date(1, 1, 1)])
def test_a_day_that_has_not_begun_or_can_hold_no_event_is_refused(house: House, asked: date) -> None:
    with pytest.raises(ValueError, match=f"date: expected a day from 1970-01-01 to 2026-03-02, got {asked}"):
        run(house, day(1), date=asked)


_HOLDER = """
import sys
from pathlib import Path
from collector.control import Control
with Control(Path(sys.argv[1])).job("nightly", "default"):
    print("in", flush=True)
    sys.stdin.read()
"""


def test_two_at_once_exclude_each_other(house: House) -> None:
    house.events(*calls(day(1), bad=20))
    command = [sys.executable, "-c", _HOLDER, str(house.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        with pytest.raises(JobRunning, match="nightly is already running for project default"):
            run(house, day(2))
        assert changes(house) == []
        other.kill()
    # The lock died with its holder.
    run(house, day(2))
    assert len(changes(house)) == 1
    assert Control(house.folder).last_period("nightly", "default") == "2026-03-03"
