"""Labels: which skills a query should find. Control state, with what each evaluation against them found.

Queries are kept as those of selections are: masked, or as a keyed hash alone where the settings say so.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
import sqlalchemy as sa

from analytics.labels_imported import REVISION
from collector.control import DOCUMENTS, METADATA, Control
from collector.redact import Redactor
from pickwise.settings import Settings

#: What is held against the labels: the discovery layer as it is now, or the selections that were logged.
Source = Literal["discovery", "logged"]

#: Evaluations that are remembered, by project and source.
KEPT_EVALUATIONS = 100
#: Rows of one statement: SQLite takes so many parameters.
_CHUNK = 500
#: What `bare_query` of sql/views/labels.sql takes off.
_SPACE = " \t\r\n"

LABELS = sa.Table(
    "labels",
    METADATA,
    sa.Column("project", sa.String, primary_key=True),
    sa.Column("query_key", sa.String, primary_key=True),
    sa.Column("query", sa.Text, nullable=False),
    sa.Column("expected", sa.JSON, nullable=False),
    sa.Column("language", sa.String),
    sa.Column("cluster", sa.String),
    sa.Column("labelled_at", sa.Float, nullable=False),
)
EVALUATIONS = sa.Table(
    "label_evaluations",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("project", sa.String, nullable=False, index=True),
    sa.Column("source", sa.String, nullable=False),
    sa.Column("evaluated_at", sa.Float, nullable=False),
    sa.Column("what", sa.JSON, nullable=False),
    sa.Column("metrics", sa.JSON, nullable=False),
)
#: Of queries only their key is kept here: what a session said must not outlive it.
RESULTS = sa.Table(
    "label_results",
    METADATA,
    sa.Column("evaluation_id", sa.Integer, primary_key=True),
    sa.Column("query_key", sa.String, primary_key=True),
    sa.Column("expected", sa.JSON, nullable=False),
    sa.Column("ranks", sa.JSON, nullable=False),
    sa.Column("ndcg_at_10", sa.Float, nullable=False),
)


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """The skills that a query should find."""

    query: str
    expected: tuple[str, ...]
    language: str | None = None
    cluster: str | None = None


class Written(msgspec.Struct, frozen=True):
    """How many labels an import added, changed, and found as they were."""

    added: int
    changed: int
    unchanged: int


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What one query found: the ranks of the skills expected of it, those that it found."""

    expected: tuple[str, ...]
    ranks: tuple[int, ...]
    ndcg_at_10: float


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation as it is remembered: what was evaluated, and the results by query key."""

    evaluated_at: float
    what: dict[str, Any]
    metrics: list[dict[str, Any]]
    results: dict[str, Result]


def query_key(query: str) -> str:
    """The same for queries that are equal but for the space around them."""
    return hashlib.sha256(query.strip(_SPACE).encode("utf-8", "surrogatepass")).hexdigest()


def redacted(labels: Iterable[Label], settings: Settings, control: Control) -> list[Label]:
    """The labels with their queries as the collector keeps those of selections."""
    redactor = Redactor(settings, control.secret("redaction"))
    return [msgspec.structs.replace(label, query=redactor.query(label.query)[0]) for label in labels]


class LabelStore:
    """The labels and evaluations of one data folder. Safe beside a running service."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def put(self, project: str, labels: Iterable[Label]) -> Written:
        """Write labels; one of a query that has one already replaces it. The last of several for a query holds."""
        wanted = {query_key(label.query): label for label in labels}
        before = self._stored(project)
        changed = {key: label for key, label in wanted.items() if before.get(key) != label}
        if changed:
            self._replace(project, changed)
        added = len(changed.keys() - before.keys())
        return Written(added, len(changed) - added, len(wanted) - len(changed))

    def _stored(self, project: str) -> dict[str, Label]:
        with self._control.begin() as connection:
            found = connection.execute(sa.select(LABELS).where(LABELS.c.project == project)).mappings()
            return {
                row["query_key"]: Label(
                    query=row["query"],
                    expected=tuple(row["expected"]),
                    language=row["language"],
                    cluster=row["cluster"],
                )
                for row in found
            }

    def _replace(self, project: str, labels: Mapping[str, Label]) -> None:
        now = time.time()
        rows = [
            {"project": project, "query_key": key, "labelled_at": now, **msgspec.to_builtins(label)}
            for key, label in labels.items()
        ]
        with self._control.begin() as connection:
            for keys in _chunks(list(labels)):
                connection.execute(sa.delete(LABELS).where(LABELS.c.project == project, LABELS.c.query_key.in_(keys)))
            connection.execute(sa.insert(LABELS), rows)
            connection.execute(sa.delete(DOCUMENTS).where(DOCUMENTS.c.key == REVISION))
            connection.execute(
                sa.insert(DOCUMENTS).values(key=REVISION, value=json.dumps(uuid.uuid4().hex), updated_at=now)
            )

    def last(self, project: str, source: Source) -> Evaluation | None:
        """The newest evaluation of that source."""
        newest = sa.select(EVALUATIONS).where(EVALUATIONS.c.project == project, EVALUATIONS.c.source == source)
        with self._control.begin() as connection:
            row = connection.execute(newest.order_by(EVALUATIONS.c.id.desc()).limit(1)).mappings().first()
            if row is None:
                return None
            of_it = sa.select(RESULTS).where(RESULTS.c.evaluation_id == row["id"])
            results = {
                found["query_key"]: Result(
                    expected=tuple(found["expected"]), ranks=tuple(found["ranks"]), ndcg_at_10=found["ndcg_at_10"]
                )
                for found in connection.execute(of_it).mappings()
            }
        return Evaluation(evaluated_at=row["evaluated_at"], what=row["what"], metrics=row["metrics"], results=results)

    def keep(self, project: str, source: Source, evaluation: Evaluation) -> None:
        """Remember an evaluation, and forget the oldest beyond those that are kept."""
        values = {"evaluated_at": evaluation.evaluated_at, "what": evaluation.what, "metrics": evaluation.metrics}
        with self._control.begin() as connection:
            inserted = connection.execute(sa.insert(EVALUATIONS).values(project=project, source=source, **values))
            (number,) = inserted.inserted_primary_key or (None,)
            rows = [
                {"evaluation_id": number, "query_key": key, **msgspec.to_builtins(result)}
                for key, result in evaluation.results.items()
            ]
            connection.execute(sa.insert(RESULTS), rows)
            old = (
                sa.select(EVALUATIONS.c.id)
                .where(EVALUATIONS.c.project == project, EVALUATIONS.c.source == source)
                .order_by(EVALUATIONS.c.id.desc())
                .offset(KEPT_EVALUATIONS)
                .limit(-1)
            )
            forgotten = connection.scalars(old).all()
            connection.execute(sa.delete(RESULTS).where(RESULTS.c.evaluation_id.in_(forgotten)))
            connection.execute(sa.delete(EVALUATIONS).where(EVALUATIONS.c.id.in_(forgotten)))


def _chunks(keys: Sequence[str]) -> Iterable[Sequence[str]]:
    return (keys[start : start + _CHUNK] for start in range(0, len(keys), _CHUNK))
