from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from analytics.query import metric
from analytics.tables import Tables
from dashboard.series import over_time, step_for
from tests.dashboard.conftest import Seeded


@pytest.mark.parametrize(
    ("length", "step"),
    [
        (timedelta(days=30), "day"),
        (timedelta(hours=36), "hour"),
        (timedelta(hours=5), timedelta(minutes=15)),
        (timedelta(minutes=90), timedelta(minutes=5)),
        (timedelta(minutes=3), timedelta(minutes=1)),
        (timedelta(0), timedelta(minutes=1)),
    ],
)
def test_the_step_suits_the_length(length: timedelta, step: timedelta | str) -> None:
    assert step_for(length) == step


def test_short_steps_add_up_to_the_whole(seeded: Seeded) -> None:
    connection = Tables(seeded.data_dir).connect()
    last = datetime.fromisoformat(max(event["time"] for event in seeded.of_type("selection")))
    first = last - timedelta(hours=4)
    points = over_time(connection, "acceptance_rate", "default", first, first, last)
    (whole,) = metric(connection, "acceptance_rate", start=points["time"][0])["rows"]
    assert points["n"].sum() == whole["n"]
    assert (points["value"].fill_null(0) * points["n"]).sum() == pytest.approx(whole["value"] * whole["n"])
    assert points["time"][0] <= first < points["time"][1]


def test_hours_and_days_come_from_the_metric_itself(seeded: Seeded) -> None:
    connection = Tables(seeded.data_dir).connect()
    start = datetime(1970, 1, 2, tzinfo=UTC)
    hours = over_time(connection, "fallback_rate", "default", None, start, start + timedelta(hours=36))
    days = over_time(connection, "fallback_rate", "default", None, start, start + timedelta(days=9))
    assert hours["n"].sum() == days["n"].sum() == len(seeded.of_type("selection"))
    assert days.height < hours.height
