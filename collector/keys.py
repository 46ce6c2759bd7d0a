"""API keys: made, listed and revoked in the control state.

A key is ``pw_ID_SECRET``. The id is public and finds the row, so that no search compares secrets; the secret is 256
random bits and kept as its SHA-256 alone. A slow password hash protects what people choose: nobody guesses 256 bits,
so it would only slow down every request, and a pepper would lie in the same file as the hashes.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import msgspec
import sqlalchemy as sa

from collector.control import METADATA, Control
from collector.projects import is_project

Role = Literal["ingest", "read", "admin"]
State = Literal["active", "expired", "revoked"]
ROLES: tuple[Role, ...] = get_args(Role)

MAX_NAME = 100
_ID_BYTES = 6
_SECRET_BYTES = 32
_KEY = re.compile(r"pw_([0-9a-f]{12})_([0-9a-f]{64})")

API_KEYS = sa.Table(
    "api_keys",
    METADATA,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("project", sa.String, nullable=False, index=True),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("roles", sa.JSON, nullable=False),
    sa.Column("secret_hash", sa.String, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("expires_at", sa.Float),
    sa.Column("revoked_at", sa.Float),
    sa.Column("last_used_at", sa.Float),
    sa.Column("events_per_second", sa.Float),
    sa.Column("bytes_per_day", sa.BigInteger),
    sa.Column("used_day", sa.String),
    sa.Column("used_bytes", sa.BigInteger, nullable=False, server_default="0"),
)


class KeyProblem(ValueError):  # noqa: N818 - names the field
    """A key that cannot be made as asked; the message names the field and what was expected."""


class UnknownKey(LookupError):  # noqa: N818 - a state
    """No key has that id."""


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key as it is stored. Times are Unix seconds; ``used_bytes`` were taken on ``used_day`` (UTC, ISO)."""

    id: str
    project: str
    name: str
    roles: tuple[Role, ...]
    secret_hash: str
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None
    events_per_second: float | None = None
    bytes_per_day: int | None = None
    used_day: str | None = None
    used_bytes: int = 0

    def state(self, now: float) -> State:
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"

    def may(self, roles: Iterable[Role]) -> bool:
        """Whether the key has one of the roles; ``admin`` stands for each."""
        return "admin" in self.roles or any(role in self.roles for role in roles)

    def fits(self, secret: str) -> bool:
        """Whether the secret is this key's, in constant time."""
        return hmac.compare_digest(self.secret_hash, digest(secret))


class Use(NamedTuple):
    """What a running service has seen of a key since it last wrote that down."""

    last_used_at: float
    used_day: str | None
    used_bytes: int


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def split_key(text: str) -> tuple[str, str] | None:
    """The id and the secret of a key, or None for what is none."""
    found = _KEY.fullmatch(text)
    return (found[1], found[2]) if found else None


class KeyStore:
    """The keys of one data folder. Safe beside a running service, which sees a change within seconds."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def create(
        self,
        project: str,
        roles: Sequence[str],
        *,
        name: str = "",
        expires_at: float | None = None,
        events_per_second: float | None = None,
        bytes_per_day: int | None = None,
    ) -> tuple[ApiKey, str]:
        """Make a key; the text returned beside it is shown once and kept nowhere. Raises KeyProblem."""
        now = time.time()
        secret = secrets.token_hex(_SECRET_BYTES)
        key = ApiKey(
            id=secrets.token_hex(_ID_BYTES),
            project=project,
            name=name,
            roles=_roles(roles),
            secret_hash=digest(secret),
            created_at=now,
            expires_at=expires_at,
            events_per_second=events_per_second,
            bytes_per_day=bytes_per_day,
        )
        _check(key, now)
        with self._control.begin() as connection:
            connection.execute(sa.insert(API_KEYS).values(**msgspec.structs.asdict(key)))
        return key, f"pw_{key.id}_{secret}"

    def all(self, project: str | None = None) -> list[ApiKey]:
        """Every key, also revoked and expired ones, oldest first; of one project where it is named."""
        query = sa.select(API_KEYS).order_by(API_KEYS.c.created_at, API_KEYS.c.id)
        if project is not None:
            query = query.where(API_KEYS.c.project == project)
        with self._control.begin() as connection:
            return [_from_row(row) for row in connection.execute(query).mappings()]

    def revoke(self, key_id: str) -> ApiKey:
        """End a key for good; one that is revoked already stays as it is. Raises UnknownKey."""
        revoke = sa.update(API_KEYS).where(API_KEYS.c.id == key_id, API_KEYS.c.revoked_at.is_(None))
        with self._control.begin() as connection:
            connection.execute(revoke.values(revoked_at=time.time()))
        for key in self.all():
            if key.id == key_id:
                return key
        raise UnknownKey(f"no key has the id {key_id!r:.40}; `pickwise keys list` shows them")

    def note(self, uses: dict[str, Use]) -> None:
        """Write down when keys were last used, and how much of their day."""
        with self._control.begin() as connection:
            for key_id, use in uses.items():
                connection.execute(sa.update(API_KEYS).where(API_KEYS.c.id == key_id).values(**use._asdict()))


def has_active_key(data_dir: Path) -> bool:
    """Whether a key of the folder opens anything now. Makes no folder where there is none."""
    if not (Path(data_dir) / "control.sqlite").exists():
        return False
    control = Control(data_dir)
    try:
        return any(key.state(time.time()) == "active" for key in KeyStore(control).all())
    finally:
        control.close()


def _from_row(row: Mapping[Any, Any]) -> ApiKey:
    return msgspec.convert({str(column): value for column, value in row.items()}, ApiKey)


def _roles(roles: Sequence[str]) -> tuple[Role, ...]:
    wrong = [role for role in roles if role not in ROLES]
    if wrong or not roles:
        raise KeyProblem(f"role: expected one or more of {', '.join(ROLES)}; got {', '.join(wrong) or 'none'}")
    return tuple(role for role in ROLES if role in roles)


def _check(key: ApiKey, now: float) -> None:
    if not is_project(key.project):
        raise KeyProblem(f"project: expected 1 to 64 of A-Z a-z 0-9 . _ -, got {key.project!r:.80}")
    if len(key.name) > MAX_NAME or not key.name.isprintable():
        raise KeyProblem(f"name: expected at most {MAX_NAME} printable characters, got {key.name!r:.120}")
    if key.expires_at is not None and key.expires_at <= now:
        raise KeyProblem("expires: expected a time to come")
    if key.events_per_second is not None and not 0 < key.events_per_second < float("inf"):
        raise KeyProblem(f"events_per_second: expected a number above 0, got {key.events_per_second}")
    if key.bytes_per_day is not None and not 0 < key.bytes_per_day < 2**63:
        raise KeyProblem(f"bytes_per_day: expected a whole number above 0, got {key.bytes_per_day}")
