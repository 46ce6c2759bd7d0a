"""Exact repeats are known, everything else passes."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from collector.dedup import REMEMBER, KeyIndex, Keys, KeySet, keys_of
from collector.lake import Lake

DAY = date(2026, 1, 10)
KEYS = st.lists(st.integers(0, 50), max_size=30).map(lambda found: np.array(found, dtype=np.uint64))


def rows(*keys: tuple[str, str, str]) -> pl.DataFrame:
    return pl.DataFrame(list(keys), schema=["project", "event_id", "fact"], orient="row")


@given(st.lists(KEYS, max_size=8), KEYS)
def test_a_key_set_holds_what_was_added(added: list[Keys], asked: Keys) -> None:
    keys, model = KeySet(), set[int]()
    for batch in added:
        keys.add(batch)
        model.update(batch.tolist())
    assert keys.contains(asked).tolist() == [key in model for key in asked.tolist()]


def test_runs_stay_few() -> None:
    keys = KeySet()
    for start in range(0, 50_000, 50):
        keys.add(np.arange(start, start + 50, dtype=np.uint64))
    assert len(keys) == 50_000
    assert len(keys._runs) <= 12


def test_repeats_within_and_across_batches_are_not_fresh() -> None:
    index = KeyIndex()
    batch = keys_of(rows(("p", "a", "1"), ("p", "a", "1"), ("p", "b", "1")))
    fresh = index.fresh(batch)
    assert fresh.tolist() == [True, False, True]
    index.add(batch[fresh], DAY)
    assert index.fresh(batch).tolist() == [False, False, False]


def test_project_id_and_content_each_make_a_key() -> None:
    keys = keys_of(rows(("p", "a", "1"), ("q", "a", "1"), ("p", "b", "1"), ("p", "a", "2"), ("pa", "", "1")))
    assert len(set(keys.tolist())) == 5


def test_old_days_are_forgotten_and_young_ones_kept() -> None:
    index = KeyIndex()
    for back in (9, 8, 7, 0):
        index.add(np.array([back], dtype=np.uint64), DAY - timedelta(days=back))
    assert index.fresh(np.array([9, 8, 7, 0], dtype=np.uint64)).tolist() == [True, False, False, False]


def test_the_index_comes_back_from_the_rows_of_the_last_days(tmp_path: Path) -> None:
    now = datetime(2026, 1, 10, 12, tzinfo=UTC)
    lake = Lake(tmp_path)
    stored = rows(("p", "young", "1"), ("p", "old", "1")).with_columns(
        date=pl.lit(DAY),
        time=pl.lit(now),
        received_at=pl.Series([now - REMEMBER + timedelta(hours=1), now - REMEMBER - timedelta(hours=1)]),
    )
    lake.append("feedback", stored)
    index = KeyIndex.of_files(lake.files("feedback"), now)
    assert len(index) == 1
    assert index.fresh(keys_of(stored)).tolist() == [False, True]
