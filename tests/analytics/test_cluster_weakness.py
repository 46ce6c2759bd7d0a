"""Weak clusters: by hand, against the rest, and with too few observations to say anything."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from analytics.cluster_weakness import JUDGED_BY, clusters_by_weakness
from analytics.wilson import wilson
from tests.analytics.conftest import House
from tests.analytics.test_clusters import DAY, FLIGHTS, INVOICES, WEATHER, asking, night, placed


def call(number: int, ok: bool) -> dict[str, Any]:
    time = (DAY + timedelta(hours=6, minutes=number)).isoformat()
    known = {"type": "call", "event_id": f"c{number}", "time": time, "skill_id": "a"}
    return known | {"selection_id": f"{DAY:%d}-{number}", "ok": ok}


@pytest.fixture
def asked(house: House) -> House:
    """Of 24 questions about the weather 18 pass over rank 1, of 30 about flights 3, and of 6 without a query none.

    Every flight fails, and nothing else does. Of three questions about invoices all go wrong.
    """
    picks: list[tuple[Any, int, int]] = [(WEATHER, 24, 18), (FLIGHTS, 30, 3), ([None], 6, 0), (INVOICES, 3, 3)]
    turns = [(queries[i % len(queries)], i < passed) for queries, n, passed in picks for i in range(n)]
    house.events(*(asking(query, i, "b" if passed else "a") for i, (query, passed) in enumerate(turns)))
    house.events(*(call(i, query not in FLIGHTS) for i, (query, _) in enumerate(turns)))
    night(house)
    return house


def found_in(house: House, start: datetime | None = None) -> dict[str, dict[str, Any]]:
    """By one of their queries."""
    names = {cluster: query for query, cluster in placed(house).items()}
    topics = {query: topic for topic in (WEATHER, FLIGHTS, INVOICES) for query in topic}
    rows = clusters_by_weakness(house.connect(), start=start)
    return {topics[names[row["cluster"]]][0]: row for row in rows}


def test_what_is_worse_than_the_rest_comes_first(asked: House) -> None:
    found = found_in(asked)
    # 30 failures of 30, of which nothing else has one, before 18 − 24 × 6 ÷ 39.
    assert list(found) == [FLIGHTS[0], WEATHER[0], INVOICES[0]]
    flights, weather, invoices = found.values()
    assert (flights["weak_by"], flights["excess"]) == (["failed_tool_rate"], 30)
    assert flights["metrics"]["failed_tool_rate"] | {"low": 0, "high": 0} == {
        "value": 1.0, "n": 30, "low": 0, "high": 0, "rest": 0.0,
    }  # fmt: skip
    assert weather["weak_by"] == ["mismatch_rate"]
    assert weather["excess"] == pytest.approx(18 - 24 * 6 / 39)
    mismatch = weather["metrics"]["mismatch_rate"]
    assert (mismatch["value"], mismatch["n"]) == (0.75, 24)
    assert mismatch["rest"] == pytest.approx(6 / 39)
    assert (mismatch["low"], mismatch["high"]) == pytest.approx(wilson(18, 24))
    # A list is accepted when anything on it is picked: here always.
    assert weather["metrics"]["acceptance_rate"] == {
        "value": 1.0, "n": 24, "low": pytest.approx(wilson(24, 24)[0]), "high": 1.0, "rest": 1.0,
    }  # fmt: skip
    assert "weather" in weather["cluster_name"]
    # Three of three are no finding.
    assert invoices["metrics"]["mismatch_rate"]["value"] == 1.0
    assert (invoices["weak_by"], invoices["excess"]) == ([], 0)


def test_a_good_rate_that_is_low_is_weak(house: House) -> None:
    turns = [(WEATHER[i % 6], None) for i in range(20)] + [(FLIGHTS[i % 6], "a") for i in range(20)]
    events = [asking(query, i) | {"picks": [pick] if pick else []} for i, (query, pick) in enumerate(turns)]
    house.events(*events)
    night(house)
    weather, flights = found_in(house).values()
    assert (weather["weak_by"], weather["excess"]) == (["acceptance_rate"], 20)
    assert (weather["metrics"]["acceptance_rate"]["value"], weather["metrics"]["acceptance_rate"]["rest"]) == (0, 1)
    # Without a pick there is nothing that could disagree.
    assert weather["metrics"]["mismatch_rate"] == {"value": None, "n": 0, "low": None, "high": None, "rest": None}
    assert flights["weak_by"] == []


def test_a_window_counts_what_lies_in_it(asked: House) -> None:
    """From the fifth flight on; calls come later than all selections."""
    found = found_in(asked, DAY + timedelta(minutes=28))
    assert FLIGHTS[0] in found
    counts = {name: found[FLIGHTS[0]]["metrics"][name]["n"] for name in JUDGED_BY}
    assert counts == {"acceptance_rate": 26, "mismatch_rate": 26, "failed_tool_rate": 30}
    assert found[WEATHER[0]]["metrics"]["mismatch_rate"]["n"] == 0


def test_without_clusters_there_is_none(house: House) -> None:
    assert clusters_by_weakness(house.connect()) == []
    house.events(asking("what is the weather", 1))
    assert clusters_by_weakness(house.connect()) == []
