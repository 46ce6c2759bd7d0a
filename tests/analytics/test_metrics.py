"""Each metric on an example counted by hand, and on the published trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from analytics.labels import Label, LabelStore
from analytics.metrics.declarations import DECISIONS, GROUPINGS, METRICS
from analytics.metrics.document import metrics_document
from analytics.query import metric
from analytics.settle import settle
from collector.control import Control
from tests.analytics.conftest import House, at, entry, moment

Event = dict[str, Any]


def value(house: House, name: str, by: Sequence[str] = (), **options: Any) -> Any:
    """(value, n), or a dict of them by group."""
    rows = metric(house.connect(), name, by=by, **options)["rows"]
    if not by:
        (row,) = rows
        return row["value"], row["n"]
    keys = [tuple(row[group] for group in by) for row in rows]
    return {key[0] if len(by) == 1 else key: (row["value"], row["n"]) for key, row in zip(keys, rows, strict=True)}


def selection(event_id: str, listed: str = "", picks: str | None = None, **fields: Any) -> Event:
    """``listed`` and ``picks`` are words, one a skill."""
    event: Event = {"type": "selection", "event_id": event_id, "time": at(0), "ranked": True} | fields
    event["candidates"] = [{"skill_id": skill} for skill in listed.split()]
    return event if picks is None else event | {"picks": picks.split()}


def call(event_id: str, skill_id: str, ok: bool | None = True, seconds: float = 1, **fields: Any) -> Event:
    return {"type": "call", "event_id": event_id, "time": at(seconds), "skill_id": skill_id, "ok": ok} | fields


def test_acceptance_rate(house: House) -> None:
    house.events(
        selection("accepted", "a b", "b"),
        selection("off the list", "a b", "z"),
        selection("none", "a b", ""),
        selection("nothing offered", "", "z"),
    )
    # Three selections offered something, one of them was accepted.
    assert value(house, "acceptance_rate") == (1 / 3, 3)
    # a was shown 3 times and never picked; b was shown 3 times and picked once.
    assert value(house, "acceptance_rate", ["skill"]) == {"a": (0.0, 3), "b": (1 / 3, 3)}


def test_final_answers_are_no_decisions(house: House) -> None:
    house.events(
        selection("asked", "a b", "b", ranked=False, trace_id="a" * 32),
        call("c", "b", trace_id="a" * 32, selection_id="asked"),
        selection("answered", "a b", "", ranked=False, trace_id="a" * 32, time=at(5)),
    )
    assert value(house, "acceptance_rate") == (1.0, 1)
    assert value(house, "zero_pick_rate") == (0.0, 1)
    assert value(house, "over_pick_rate") == (0.0, 1)
    assert value(house, "picks_per_selection") == (1.0, 1)
    assert value(house, "acceptance_rate", ["skill"]) == {"a": (0.0, 1), "b": (1.0, 1)}


def test_picks_zero_picks_and_too_many(house: House) -> None:
    house.events(selection("1", "a", ""), selection("2", "a", "a b"), selection("3", "a", "a b c d e f g"))
    assert value(house, "picks_per_selection") == (3.0, 3)  # (0 + 2 + 7) / 3
    assert value(house, "zero_pick_rate") == (1 / 3, 3)
    assert value(house, "over_pick_rate") == (1 / 3, 3)  # 7 > 6


def test_six_picks_are_not_too_many(house: House) -> None:
    house.events(selection("1", "a", "a b c d e f"))
    assert value(house, "over_pick_rate") == (0.0, 1)


def test_top1_acceptance_rate(house: House) -> None:
    house.events(
        selection("first", "a b", "a"),
        selection("second", "a b", "b"),
        selection("off the list", "a b", "z"),
        selection("unranked", "a b", "a", ranked=False),
    )
    # Two ranked selections have a listed pick; one of them picked rank 1.
    assert value(house, "top1_acceptance_rate") == (1 / 2, 2)


def test_mismatch_rate_and_its_parts(house: House) -> None:
    house.events(
        selection("good", "a b", "a"),
        selection("skipped", "a b", "b"),
        selection("off", "a b", "a z"),
        selection("skipped and off", "a b", "b z"),
        selection("corrected", "a b", "a"),
        selection("labelled otherwise", "a b", "a"),
        selection("labelled alike", "a b", "a"),
        selection("judged", "a b", "a"),
        selection("no pick", "a b", ""),
        selection("unranked", "a b", "b", ranked=False),
        {"type": "feedback", "event_id": "1", "time": at(9), "kind": "wrong_skill", "selection_id": "corrected"},
        {"type": "feedback", "event_id": "2", "time": at(9), "kind": "label", "expected": ["b"]}
        | {"selection_id": "labelled otherwise"},
        {"type": "feedback", "event_id": "3", "time": at(9), "kind": "label", "expected": ["b", "a"]}
        | {"selection_id": "labelled alike"},
        {"type": "feedback", "event_id": "4", "time": at(9), "kind": "rejected", "source": "judge"}
        | {"selection_id": "judged"},
        {"type": "feedback", "event_id": "5", "time": at(9), "kind": "accepted", "selection_id": "good"},
    )
    # Eight ranked selections have a pick: two skip rank 1, two have z off the list, two are corrected.
    assert value(house, "skip_rate") == (2 / 8, 8)
    assert value(house, "off_list_rate") == (2 / 8, 8)
    assert value(house, "corrected_rate") == (2 / 8, 8)
    # "skipped and off" is one mismatch, not two.
    assert value(house, "mismatch_rate") == (5 / 8, 8)
    assert value(house, "corrected_rate", judge=True) == (3 / 8, 8)
    assert value(house, "mismatch_rate", judge=True) == (6 / 8, 8)
    # a was picked 6 times and never off the list, z twice and always.
    assert value(house, "off_list_rate", ["skill"]) == {"a": (0.0, 6), "b": (0.0, 2), "z": (1.0, 2)}
    assert value(house, "skip_rate", ["skill"]) == {"a": (2 / 8, 8)}


def test_an_imported_label_that_names_other_skills_is_a_correction(house: House) -> None:
    house.write(entry("mail/send", name="send"), entry("book"))
    house.events(
        selection("disagrees", "book send", "book", query="write to Ada"),
        selection("agrees", "send book", "send", query="write to Ada\n"),
        selection("told", "book send", "book", query="write to Ada"),
        selection("of nothing", "book send", "book", query="hello"),
        selection("no label", "book send", "book", query="what else"),
        selection("unranked", "book send", "book", query="write to Ada", ranked=False),
        {"type": "feedback", "event_id": "1", "time": at(9), "kind": "label", "expected": ["book"]}
        | {"selection_id": "told"},
        {"type": "feedback", "event_id": "2", "time": at(9), "kind": "label", "expected": []}
        | {"selection_id": "of nothing"},
    )
    assert value(house, "corrected_rate") == (1 / 5, 5)  # "of nothing": its label says that no skill was right
    imported(house, Label(query="write to Ada", expected=("mail/send",)))
    imported(house, Label(query="what else", expected=("mail/send",)), project="other")
    # Five ranked selections have a pick. "disagrees" picked book; "agrees" picked mail/send by its name; the label that
    # was told of "told" itself beats that of its query.
    assert value(house, "corrected_rate") == (2 / 5, 5)
    assert value(house, "mismatch_rate") == (2 / 5, 5)
    assert value(house, "corrected_rate", ["skill"]) == {"book": (2 / 4, 4), "mail/send": (0.0, 1)}


def imported(house: House, *labels: Label, project: str = "default") -> None:
    with closing(Control(house.folder)) as control:
        LabelStore(control).put(project, labels)


def test_failed_tool_rate_and_the_callers_part(house: House) -> None:
    house.events(
        call("1", "a"),
        call("2", "a", False, error_kind="timeout"),
        call("3", "b", False, error_kind="invalid_arguments"),
        call("4", "b", False),
        call("5", "b", None),
    )
    # Four calls finished, three of them failed, one by its caller's fault; who gives no kind is `other`.
    assert value(house, "failed_tool_rate") == (3 / 4, 4)
    assert value(house, "caller_fault_rate") == (1 / 4, 4)
    kinds = {"timeout": (1 / 4, 4), "invalid_arguments": (1 / 4, 4), "other": (1 / 4, 4)}
    assert value(house, "failed_tool_rate", ["error_kind"]) == kinds
    assert value(house, "caller_fault_rate", ["error_kind"]) == {"invalid_arguments": (1 / 4, 4)}
    # By skill and kind, the denominator is the skill's finished calls.
    assert value(house, "failed_tool_rate", ["error_kind", "skill"])["timeout", "a"] == (1 / 2, 2)


def test_names_that_the_registry_does_not_know(house: House) -> None:
    house.write(entry("read_file"), entry("gone", is_active=False))
    house.events(
        call("1", "read_file"),
        call("2", "ReadFile"),
        call("3", "invented"),
        call("4", "gone"),
    )
    # Four calls: read_file is known, ReadFile all but equals it, invented is unknown, gone was retired from the start.
    assert value(house, "hallucinated_tool_rate") == (2 / 4, 4)
    assert value(house, "near_miss_rate") == (1 / 4, 4)
    assert value(house, "retired_call_rate") == (1 / 4, 4)
    assert value(house, "hallucinated_tool_rate", ["skill"])["invented"] == (1.0, 1)


def test_names_are_judged_anew_when_the_registry_comes_late_or_is_corrected(house: House) -> None:
    house.events(call("1", "read_file", seconds=10), call("2", "search", seconds=10), call("3", "search", seconds=30))
    assert value(house, "hallucinated_tool_rate") == (None, 0)  # nothing is known of the project's skills
    settle(house.folder)
    # The first registry holds from the beginning of time, though it came after the calls: both searches are unknown.
    house.write(entry("read_file"))
    assert value(house, "hallucinated_tool_rate") == (2 / 3, 3)
    settle(house.folder)
    # A skill that was added later is still unknown to the call before.
    house.write(entry("search", moment(20), seq=1))
    assert value(house, "hallucinated_tool_rate") == (1 / 3, 3)
    # The history is corrected: it was there since before the first call.
    house.write(entry("search", moment(5), seq=2))
    assert value(house, "hallucinated_tool_rate") == (0.0, 3)
    # And read_file, it turns out, was retired in between: no hallucination, but a call of a retired skill.
    house.write(entry("read_file", moment(7), op="retire", seq=3))
    assert value(house, "hallucinated_tool_rate") == (0.0, 3)
    assert value(house, "retired_call_rate") == (1 / 3, 3)


def test_without_a_registry_no_name_is_judged(house: House) -> None:
    house.events(call("1", "read_file"))
    assert value(house, "hallucinated_tool_rate") == (None, 0)


def test_unknown_argument_rate(house: House) -> None:
    house.write(entry("a", parameters_schema={"properties": {"q": {}}}))
    house.events(
        call("1", "a", args_keys=["q"]),
        call("2", "a", args_keys=["q", "size"]),
        call("3", "a"),
        call("4", "b", args_keys=["x"]),
    )
    # Two calls say their arguments and have a schema.
    assert value(house, "unknown_argument_rate") == (1 / 2, 2)


def test_stage_latency_leaves_out_and_counts_what_is_no_duration(house: House) -> None:
    house.events(
        *(selection(f"s{i}", "a", "a", stage_ms={"rerank": float(i)}) for i in range(1, 101)),
        selection("negative", "a", "a", stage_ms={"rerank": -5.0, "total": 2.0}),
        call("1", "a", latency_ms=10.0),
        call("2", "a"),
    )
    rows = {row["stage"]: row for row in metric(house.connect(), "stage_latency_ms")["rows"]}
    # 1…100: the quantile q lies at 1 + 99 q, between two values in proportion.
    assert rows["rerank"]["p50"] == pytest.approx(50.5)
    assert rows["rerank"]["p95"] == pytest.approx(95.05)
    assert rows["rerank"]["p99"] == pytest.approx(99.01)
    assert (rows["rerank"]["n"], rows["rerank"]["left_out"]) == (100, 1)
    assert (rows["total"]["p50"], rows["total"]["n"], rows["total"]["left_out"]) == (2.0, 1, 100)
    assert (rows["call"]["p99"], rows["call"]["n"], rows["call"]["left_out"]) == (10.0, 1, 1)
    assert set(rows) == {"rerank", "total", "call"}


def test_fallback_and_no_match(house: House) -> None:
    house.events(
        selection("1", "a", "a", fallback=True),
        selection("2", "a", "a"),
        selection("3", "", "", no_match=True),
        selection("4", "a", "a", ranked=False, fallback=True),
    )
    # Three selections were ranked; absent means that there was no fallback, and a match.
    assert value(house, "fallback_rate") == (1 / 3, 3)
    assert value(house, "no_match_rate") == (1 / 3, 3)


def test_menu_tokens(house: House) -> None:
    house.events(*(selection(str(i), "a", "a", menu_tokens=i) for i in range(101)), selection("none", "a", "a"))
    (row,) = metric(house.connect(), "menu_tokens")["rows"]
    # 0…100: the quantile q lies at 100 q; one selection doesn't say.
    assert (row["value"], row["p50"], row["p99"], row["n"], row["left_out"]) == (50.0, 50.0, 99.0, 101, 1)


def route(event_id: str, seconds: float, state: str, instance: str = "r1") -> Event:
    return {"type": "route", "event_id": event_id, "time": at(seconds), "instance": instance, "state": state}


def test_degraded_seconds_and_half_failures(house: House) -> None:
    house.events(
        # Degraded for 60 s, then well.
        route("1", 0, "degraded"),
        route("2", 30, "probe"),
        route("3", 60, "recovered"),
        # Degraded, probed for 120 s, then silent: lost after 5 minutes, 420 s in all.
        route("4", 1000, "degraded", "r2"),
        *(route(f"p{i}", 1000 + 30 * i, "probe", "r2") for i in range(1, 5)),
    )
    # 60 + 420 s; only the second spell went past its 90th second.
    assert value(house, "degraded_seconds") == (480.0, 2)
    assert value(house, "half_failure") == (1.0, 2)
    # A window that sees 20 s of the first spell.
    assert value(house, "degraded_seconds", start=moment(40), end=moment(500)) == (20.0, 1)


def test_loop_rate(house: House) -> None:
    def said(event_id: str, session: str, seconds: float, q: int, skill: str = "a") -> Event:
        return call(event_id, skill, seconds=seconds, session_id=session, arguments={"q": q})

    house.events(
        *(said(f"loop{i}", "loops", i, 1) for i in range(3)),
        said("v0", "varies", 0, 1),
        said("v1", "varies", 1, 2),
        said("v2", "varies", 2, 1),
        said("v3", "varies", 3, 1),
        call("no session", "a"),
    )
    # Two sessions have calls; one calls a with the same arguments three times in a row.
    assert value(house, "loop_rate") == (1 / 2, 2)


def test_repair_rate(house: House) -> None:
    bad = {"error_kind": "invalid_arguments"}
    house.events(
        call("1", "a", False, 1, call_id="k1", attempt=1, **bad),
        call("2", "a", True, 2, call_id="k1", attempt=2),
        call("3", "b", False, 1, session_id="z", **bad),
        call("4", "b", True, 2, session_id="z"),
        call("5", "c", False, 1, session_id="z", **bad),
        call("6", "c", True, 0, session_id="z"),
        call("7", "d", False, 1, session_id="z", error_kind="timeout"),
    )
    # Three calls failed for their arguments: k1 mends itself, b is called again with success, c only before.
    assert value(house, "repair_rate") == (2 / 3, 3)


PUBLISHED = {
    "acceptance_rate": (186, 282),
    "zero_pick_rate": (97, 283),
    "top1_acceptance_rate": (127, 186),
    "skip_rate": (59, 186),
    "off_list_rate": (6, 186),
    "mismatch_rate": (61, 186),
    "failed_tool_rate": (118, 531),
    "hallucinated_tool_rate": (3, 531),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_trajectories_give_their_numbers(livemcp: House, name: str) -> None:
    k, n = PUBLISHED[name]
    assert value(livemcp, name) == (k / n, n)


def test_the_published_failures_by_kind(livemcp: House) -> None:
    kinds = value(livemcp, "failed_tool_rate", ["error_kind"])
    assert kinds == {"tool_error": (104 / 531, 531), "timeout": (14 / 531, 531)}


@pytest.mark.parametrize("declared", METRICS, ids=lambda declared: declared.name)
def test_every_metric_is_declared_in_full(declared: Any) -> None:
    sql = Path(__file__).parents[2] / "analytics" / "metrics" / f"{declared.name}.sql"
    assert sql.is_file()
    assert declared.decision in DECISIONS
    assert set(declared.groupings) <= set(GROUPINGS)
    assert bool(declared.skill) == ("skill" in declared.groupings)
    assert (declared.warn is None) == (declared.bad is None)


def test_every_sql_file_is_declared() -> None:
    folder = Path(__file__).parents[2] / "analytics" / "metrics"
    assert {path.stem for path in folder.glob("*.sql")} == {declared.name for declared in METRICS}


def test_the_page_of_metrics_is_current() -> None:
    page = Path(__file__).parents[2] / "docs" / "metrics.md"
    assert page.read_text() == metrics_document(), "run: make docs"
