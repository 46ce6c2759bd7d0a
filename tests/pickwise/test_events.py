"""Times as flags and URLs carry them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pickwise.events import EventError, as_datetime, decode_event, parse_instant
from pickwise.skills import decode_skill

NEW_YEAR = 1_767_225_600_000_000_000


@pytest.mark.parametrize(
    "text",
    [
        *("2026-01-01T00:00:00Z", "2026-01-01T00:00:00", "2026-01-01 00:00:00Z", "1767225600000000000"),
        *("2026-01-01T02:00:00+02:00", "2026-01-01T02:00:00 02:00", "2026-01-01T02:00:00.000 02:00"),
        "2025-12-31T22:00:00-02:00",
    ],
)
def test_one_moment_in_many_forms(text: str) -> None:
    assert parse_instant(text) == NEW_YEAR


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "NaN", "²", "٣", "9" * 22, "9" * 5_000, "2026-01-01", "\0"])
def test_what_is_no_time_is_named(text: str) -> None:
    with pytest.raises(EventError, match="time: expected"):
        parse_instant(text)


def test_a_moment_is_cut_to_the_microsecond_as_rows_are() -> None:
    assert as_datetime(NEW_YEAR + 123_456_999) == datetime(2026, 1, 1, 0, 0, 0, 123_456, UTC)


@pytest.mark.parametrize(
    ("event", "says"),
    [
        ({"type": "call", "skill_id": "a", "error_kind": "x"}, "error_kind: expected one of timeout, http_4xx, .*'x'"),
        ({"type": "call", "skill_id": "a", "phase": "run"}, "phase: expected one of invoke, validate, exec, output"),
        ({"type": "feedback", "kind": "good"}, "kind: expected one of accepted, rejected"),
        ({"type": "feedback", "kind": "label", "source": ""}, "source: expected one of human, implicit, judge"),
        (
            {"type": "route", "instance": "a", "state": "up"},
            "state: expected one of degraded, recovered, probe; got 'up'",
        ),
        ({"type": "route", "instance": "a", "state": 1}, "state: expected `str`, got `int`"),
    ],
)
def test_a_word_that_is_none_of_a_field_is_answered_with_those_that_are(event: dict[str, object], says: str) -> None:
    with pytest.raises(EventError, match=says):
        decode_event(event)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"skill_id": "a", "kind": "tool"}, "kind: expected one of function, mcp, skill; got 'tool'"),
        ({"skill_id": "a", "freshness": "old"}, "freshness: expected one of ok, degraded, down"),
        ({"skill_id": "a", "valid_from": "soon"}, "valid_from: expected RFC 3339"),
    ],
)
def test_an_entry_too_names_its_own_field(entry: dict[str, object], says: str) -> None:
    with pytest.raises(EventError, match=says):
        decode_skill(entry)
