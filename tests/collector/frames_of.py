"""Facts as the frames that would be committed, without a collector."""

from __future__ import annotations

import polars as pl

from collector.columns import Columns
from collector.facts import Facts
from collector.redact import Redactor
from collector.rows import Ledger, RowMaker


def to_frames(
    project: str, facts: Facts, *, received_at: int, source_request: str, redactor: Redactor
) -> dict[str, pl.DataFrame]:
    """One frame a table that the facts touch, in its schema."""
    maker = RowMaker(project, received_at, source_request, redactor, Ledger())
    frames = {}
    for table, made in maker.rows(facts).items():
        columns = Columns(table)
        columns.add(made, maker.receipt)
        frames[table] = columns.frame()
    return frames
