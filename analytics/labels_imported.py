"""The imported labels as the tables read them.

Read with the standard library: SQLAlchemy would take every `pickwise metrics` a third of a second. Writing them is the
work of ``labels``.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl

logger = logging.getLogger(__name__)

#: The document of the control state that changes with the labels.
REVISION = "labels/revision"
SCHEMA = {
    "project": pl.String(),
    "query": pl.String(),
    "expected": pl.List(pl.String()),
    "language": pl.String(),
    "cluster": pl.String(),
    "labelled_at": pl.Float64(),
}


class LabelsUnreadable(OSError):  # noqa: N818 - said in full where it is raised
    """The control state is damaged."""


def revision(data_dir: Path) -> str | None:
    """What changes whenever a label does; None before the first. Raises LabelsUnreadable."""
    found = _rows(data_dir, "select value from documents where key = ?", REVISION)
    return str(found[0][0]) if found else None


def imported(data_dir: Path) -> pl.DataFrame:
    """Every imported label of every project."""
    is_there = revision(data_dir) is not None  # before the first, the table may be missing too
    found = _rows(data_dir, f"select {', '.join(SCHEMA)} from labels") if is_there else []
    decoded = [(project, query, json.loads(expected), *rest) for project, query, expected, *rest in found]
    return pl.DataFrame(decoded, schema=SCHEMA, orient="row")


def _rows(data_dir: Path, query: str, *parameters: str) -> list[Any]:
    path = Path(data_dir) / "control.sqlite"
    if not path.exists():
        return []
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=30)) as connection:
            return connection.execute(query, parameters).fetchall()
    except sqlite3.OperationalError as error:  # a copy of a folder that nobody may write to, for one
        logger.warning("the labels in %s could not be read: %s", path, error)
        return []
    except sqlite3.DatabaseError as error:
        raise LabelsUnreadable(f"{path} is damaged ({error}): restore it from a backup") from error
