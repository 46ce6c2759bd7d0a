"""A column of rows becomes the series that Arrow would make of it, by whichever way is the faster."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from collector import columns as module

TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
KINDS: dict[str, tuple[Any, Any]] = {
    "query": (pl.String, TEXTS),
    "time": (pl.Datetime("us", "UTC"), st.none() | st.integers(0, 2**53)),
    "turn": (pl.Int64, st.none() | st.integers(-(2**63), 2**63 - 1)),
    "latency_ms": (pl.Float64, st.none() | st.floats() | st.integers(0, 9)),
    "ok": (pl.Boolean, st.none() | st.booleans()),
    "picks": (pl.List(pl.String), st.none() | st.lists(TEXTS, max_size=2)),
    "candidates": (
        pl.List(pl.Struct({"skill_id": pl.String, "score": pl.Float64})),
        st.none() | st.lists(st.fixed_dictionaries({"skill_id": TEXTS, "score": st.none() | st.floats()}), max_size=2),
    ),
}


@settings(deadline=None)
@given(st.data(), st.sampled_from(sorted(KINDS)), st.lists(st.integers(0, 2), max_size=6))
def test_a_column_is_what_arrow_makes_of_its_values(data: st.DataObject, name: str, places: list[int]) -> None:
    kind, one = KINDS[name]
    distinct = data.draw(st.lists(one, min_size=3, max_size=3))
    values = [distinct[place] for place in places]
    made = module._series(name, kind, values)
    general = pl.Series(name, pa.array(values, pl.Series(dtype=kind).to_arrow().type))
    assert made.dtype == kind
    assert made.equals(general, null_equal=True, check_dtypes=True, check_names=True)
