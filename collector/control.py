"""Control state: small, mutable, transactional. SQLite in WAL mode in the data folder, through SQLAlchemy.

Tables of events belong to the lake; what is here is overwritten in place: the weights pointer, job runs and
their exclusion, the states of alerts, secrets of this installation, API keys (see ``keys``). Migrations are in
``collector/migrations``.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from filelock import FileLock, Timeout

METADATA = sa.MetaData()
#: Its name in the data folder.
FILE = "control.sqlite"

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


class ControlUnusable(OSError):  # noqa: N818 - a finding about a file
    """The file of the control state is damaged, or of a newer version; the message names it and the mend."""


class Control:
    """The control state of one data folder. Every method is one transaction, and raises ControlUnusable."""

    def __init__(self, data_dir: Path) -> None:
        self._dir = Path(data_dir)
        self._dir.mkdir(parents=True, exist_ok=True)
        self._database = self._dir / FILE
        self._database.touch(mode=0o600)  # it holds the secrets of the installation
        self._engine = self._connected({"timeout": 30})
        self._migrate()

    def close(self) -> None:
        self._engine.dispose()

    def check(self) -> None:
        """Read the whole file through. Raises ControlUnusable where it is damaged."""
        with self._engine.connect() as connection:
            found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
        if found != "ok":
            raise self._damaged(found)

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

    def _connected(self, arguments: dict[str, Any]) -> sa.Engine:
        engine = sa.create_engine(f"sqlite:///{self._database}", connect_args=arguments)
        sa.event.listen(engine, "connect", _pragmas)
        sa.event.listen(engine, "handle_error", self._tell_damage)
        return engine

    def _tell_damage(self, context: sa.ExceptionContext) -> None:
        """Raises ControlUnusable for an error of the file itself; a statement's or a lock's has a type of its own."""
        if type(context.original_exception) is sqlite3.DatabaseError:
            raise self._damaged(context.original_exception) from context.original_exception

    def _damaged(self, why: object) -> ControlUnusable:
        return ControlUnusable(
            f"{self._database} is damaged ({why}): restore it from a backup, or without one move it away with its -wal "
            "and -shm; then API keys, labels, states of alerts and the choice of weights begin anew, events and models "
            "stay"
        )

    def _migrate(self) -> None:
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        # As a whole or not at all: by itself sqlite3 commits before each change of the schema, and whoever is killed
        # between two of them would leave a folder that can't be opened.
        engine = self._connected({"timeout": 30, "isolation_level": None})
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        try:
            with FileLock(self._dir / ".control.lock"), engine.begin() as connection:
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        except CommandError as error:
            raise ControlUnusable(
                f"{self._database} was written by a newer version ({error}): use that one, or restore a copy from "
                "before the upgrade"
            ) from error
        finally:
            engine.dispose()


def _pragmas(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
