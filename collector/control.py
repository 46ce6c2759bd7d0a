"""Control state: small, mutable, transactional. SQLite in WAL mode in the data folder, through SQLAlchemy.

Tables of events belong to the lake; what is here is overwritten in place: the weights pointer, job runs and
their exclusion, the states of alerts, secrets of this installation, API keys (see ``keys``). Migrations are in
``collector/migrations``.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from filelock import FileLock, Timeout

METADATA = sa.MetaData()

#: Named documents: the weights pointer (`weights/PROJECT`), alert states (`alert/ID`), secrets (`secret/NAME`).
DOCUMENTS = sa.Table(
    "documents",
    METADATA,
    sa.Column("key", sa.String, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    sa.Column("updated_at", sa.Float, nullable=False),
)
JOB_RUNS = sa.Table(
    "job_runs",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("job", sa.String, nullable=False, index=True),
    sa.Column("project", sa.String, nullable=False),
    sa.Column("period", sa.String, nullable=False),
    sa.Column("started_at", sa.Float, nullable=False),
    sa.Column("finished_at", sa.Float),
    sa.Column("outcome", sa.Text),
)


class JobRunning(RuntimeError):  # noqa: N818 - a state, not a fault
    """The same job is running in another process."""


class Control:
    """The control state of one data folder. Every method is one transaction."""

    def __init__(self, data_dir: Path) -> None:
        self._dir = Path(data_dir)
        self._dir.mkdir(parents=True, exist_ok=True)
        database = self._dir / "control.sqlite"
        database.touch(mode=0o600)  # it holds the secrets of the installation
        self._engine = sa.create_engine(f"sqlite:///{database}", connect_args={"timeout": 30})
        sa.event.listen(self._engine, "connect", _pragmas)
        self._migrate()

    def close(self) -> None:
        self._engine.dispose()

    def begin(self) -> AbstractContextManager[sa.Connection]:
        """A transaction, for modules with a table of their own here."""
        return self._engine.begin()

    def get(self, key: str) -> Any:
        """The document under the key, or None."""
        with self._engine.connect() as connection:
            value = connection.scalar(sa.select(DOCUMENTS.c.value).where(DOCUMENTS.c.key == key))
        return None if value is None else json.loads(value)

    def put(self, key: str, value: Any) -> None:
        """Store (or, with None, delete) the document under the key; atomic."""
        with self._engine.begin() as connection:
            connection.execute(sa.delete(DOCUMENTS).where(DOCUMENTS.c.key == key))
            if value is not None:
                connection.execute(
                    sa.insert(DOCUMENTS).values(key=key, value=json.dumps(value), updated_at=time.time())
                )

    def items(self, prefix: str) -> dict[str, Any]:
        """All documents whose key starts with the prefix, by the rest of their key."""
        query = sa.select(DOCUMENTS.c.key, DOCUMENTS.c.value).where(DOCUMENTS.c.key.startswith(prefix, autoescape=True))
        with self._engine.connect() as connection:
            return {key[len(prefix) :]: json.loads(value) for key, value in connection.execute(query)}

    def secret(self, name: str) -> bytes:
        """A random 32-byte key of this installation, made at its first use."""
        found = self.get(f"secret/{name}")
        if found is None:
            with self._engine.begin() as connection:
                connection.execute(
                    sa.insert(DOCUMENTS)
                    .prefix_with("OR IGNORE")
                    .values(key=f"secret/{name}", value=json.dumps(secrets.token_hex(32)), updated_at=time.time())
                )
            found = self.get(f"secret/{name}")
        return bytes.fromhex(found)

    @contextmanager
    def job(self, name: str, project: str, period: str = "") -> Iterator[dict[str, Any]]:
        """Run a job alone and record the run; what the body puts into the dict is its outcome.

        Raises JobRunning when another process is in the same job of the project. The lock dies with its holder.
        """
        lock = FileLock(self._dir / f".{name}.{quote(project, safe='')}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise JobRunning(f"{name} is already running for project {project}") from error
        try:
            with self._engine.begin() as connection:
                inserted = connection.execute(
                    sa.insert(JOB_RUNS).values(job=name, project=project, period=period, started_at=time.time())
                )
                run = inserted.inserted_primary_key
            outcome: dict[str, Any] = {}
            yield outcome
            with self._engine.begin() as connection:
                connection.execute(
                    sa.update(JOB_RUNS)
                    .where(JOB_RUNS.c.id == (run[0] if run else None))
                    .values(finished_at=time.time(), outcome=json.dumps(outcome, default=str))
                )
        finally:
            lock.release()

    def last_period(self, name: str, project: str) -> str | None:
        """The newest period that a run of the job finished, or None."""
        query = sa.select(sa.func.max(JOB_RUNS.c.period)).where(
            JOB_RUNS.c.job == name, JOB_RUNS.c.project == project, JOB_RUNS.c.finished_at.is_not(None)
        )
        with self._engine.connect() as connection:
            found: str | None = connection.scalar(query)
        return found

    def _migrate(self) -> None:
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        # As a whole or not at all: by itself sqlite3 commits before each change of the schema, and whoever is killed
        # between two of them would leave a folder that can't be opened.
        engine = sa.create_engine(self._engine.url, connect_args={"timeout": 30, "isolation_level": None})
        sa.event.listen(engine, "connect", _pragmas)
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        try:
            with FileLock(self._dir / ".control.lock"), engine.begin() as connection:
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        finally:
            engine.dispose()


def _pragmas(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
