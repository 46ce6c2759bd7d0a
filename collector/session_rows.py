"""Which stored rows belong to a session."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_

import polars as pl

from collector.lake import Lake

#: Columns that tie a row without a session to a selection of it.
_TIES = {"selections": "event_id", "calls": "selection_id", "feedback": "selection_id"}


class SessionRows:
    """The rows of one session, found by what ties them: its id, its traces, the ids of its selections."""

    TABLES = ("selections", "calls", "feedback", "routes")

    def __init__(self, lake: Lake, project: str, session_id: str) -> None:
        self._lake = lake
        self._project = project
        self._session_id = session_id
        self.traces: set[str] = set()
        self.selections: set[str] = set()
        #: Call ids of its calls that no other call has.
        self.calls: set[str] = set()

    def find(self, traces: Iterable[str] = (), selections: Iterable[str] = (), calls: Iterable[str] = ()) -> None:
        """Follow the ties until nothing new is found, from those already known."""
        self.traces.update(traces)
        self.selections.update(selections)
        self.calls.update(calls)
        known = -1
        while known != len(self.traces) + len(self.selections):
            known = len(self.traces) + len(self.selections)
            for table in self.TABLES:
                self._follow(table)
        mine = self.expression("calls")
        ids = self._lake.select("calls", mine, ["call_id"])["call_id"].drop_nulls().unique()
        others = ~mine & (pl.col("project") == self._project) & pl.col("call_id").is_in(ids.implode())
        self.calls.update(set(ids) - set(self._lake.select("calls", others, ["call_id"])["call_id"]))

    def _follow(self, table: str) -> None:
        tie = _TIES.get(table)
        columns = ["trace_id", *([tie] if tie else [])]
        rows = self._lake.select(table, self.expression(table), columns)
        self.traces.update(rows["trace_id"].drop_nulls())
        if tie:
            self.selections.update(rows[tie].drop_nulls())

    def expression(self, table: str) -> pl.Expr:
        """The rows of the session in a table; rows of another session are never among them."""
        session = pl.col("session_id")
        tied = [pl.col("trace_id").is_in(sorted(self.traces))]
        if table in _TIES:
            tied.append(pl.col(_TIES[table]).is_in(sorted(self.selections)))
        if table == "feedback":
            untold = pl.col("trace_id").is_null() & pl.col("selection_id").is_null()
            tied.append(untold & pl.col("call_id").is_in(sorted(self.calls)))
        nameless = session.is_null() | (session == "")
        its = (session == self._session_id) | (nameless & reduce(or_, tied))
        return (pl.col("project") == self._project) & its
