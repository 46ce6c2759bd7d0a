"""Rows of a fact table on their way into a frame, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa

from collector.row_types import DATE, ROW_TYPES, MadeRow, Receipt, Row
from collector.tables import FACT_TABLES, TEXT, TIME


def to_frame(table: str, rows: list[Row]) -> pl.DataFrame:
    """The rows of ``to_rows``, of any number of requests, as one frame in the schema of the table.

    A column that a row does not have, as it was archived before there was one, is null there.
    """
    return _frame(table, [[row.get(name) for row in rows] for name in _columns(table)])


class Columns:
    """Rows of one table on their way into a frame: the values of each column."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._values: list[list[Any]] = [[] for _ in _columns(table)]

    def add(self, rows: Sequence[MadeRow], receipt: Receipt) -> None:
        if not rows:
            return
        # While they are few, and near: a column at a time of very many takes longer.
        told = zip(*map(msgspec.structs.astuple, rows), strict=True)
        received = ([value] * len(rows) for value in receipt)
        for column, values in zip(self._values, chain(told, received), strict=True):
            column += values

    def part(self, which: slice) -> Columns:
        """Some of the rows."""
        part = Columns(self._table)
        part._values = [column[which] for column in self._values]
        return part

    def frame(self) -> pl.DataFrame:
        """The rows in the schema of the table."""
        return _frame(self._table, self._values)


def _columns(table: str) -> tuple[str, ...]:
    return ROW_TYPES[table].__struct_fields__ + Receipt._fields


def _frame(table: str, columns: list[list[Any]]) -> pl.DataFrame:
    schema = FACT_TABLES[table]
    named = zip(_columns(table), columns, strict=True)
    found = {name: _series(name, schema[name], values) for name, values in named}
    found[DATE] = found["time"].dt.date().alias(DATE)
    return pl.DataFrame([found[name] for name in schema])


def _series(name: str, kind: pl.DataType, values: list[Any]) -> pl.Series:
    """One column. Polars is the faster with texts and times, Arrow with all that is nested."""
    if name == "candidates":
        return _menus_series(name, kind, values)
    if len(values) > 1 and values[0] is values[-1] and values.count(values[0]) == len(values):
        return _series(name, kind, values[:1]).new_from_index(0, len(values))  # as most are, above all the null ones
    if kind == TEXT:
        return pl.Series(name, values, dtype=kind)
    if kind == TIME:
        return pl.Series(name, values, dtype=pl.Int64).cast(kind)
    return pl.Series(name, pa.array(values, _arrow_type(kind)))


def _menus_series(name: str, kind: pl.DataType, values: list[Any]) -> pl.Series:
    """Many rows hold one and the same menu, which is read once."""
    distinct = {id(value): value for value in values}
    places = {key: place for place, key in enumerate(distinct)}
    menus = pl.Series(name, pa.array(list(distinct.values()), _arrow_type(kind)))
    return menus.gather([places[id(value)] for value in values])


@cache
def _arrow_type(kind: pl.DataType) -> pa.DataType:
    return pl.Series(dtype=kind).to_arrow().type
