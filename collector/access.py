"""Who may do what: the caller of a request, from its key and the project that it names.

Every way in and every question resolves its project here, alike, over HTTP (see ``callers``) and gRPC.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from collector.control import Control
from collector.keyring import HeldKey, KeyRing, Unauthenticated
from collector.keys import Role
from collector.projects import is_project
from collector.quotas import QuotaExceeded
from collector.telemetry import Telemetry
from pickwise.events import DEFAULT_PROJECT

PROJECT_HEADER = "X-Pickwise-Project"
PROJECT_QUERY = "project"
#: Set by `pickwise import`: what it brings is history, which no retention takes.
IMPORT_HEADER = "X-Pickwise-Import"


class Forbidden(RuntimeError):  # noqa: N818 - a state
    """A good key that doesn't open this: ``reason`` is `role` or `project`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class BadProject(ValueError):  # noqa: N818 - the request's state
    """A request that names no possible project, or two; the message says where."""


class Caller(NamedTuple):
    """Who asks. ``named`` is the project of its key, else the one that the request names, '' where it names none."""

    named: str
    held: HeldKey | None = None
    #: Whether what comes is history that is imported.
    imports: bool = False

    @property
    def project(self) -> str:
        return self.named or DEFAULT_PROJECT

    @property
    def is_bound(self) -> bool:
        """Whether a key decided the project, so that nothing in a body may name another."""
        return self.held is not None

    def charge(self, events: int, size: int) -> None:
        """Count accepted events and bytes (after decompression) against the key's quota."""
        if self.held is not None:
            self.held.charge(events, size)


class Access:
    """The judgement at the doors of one collector. ``open`` before use."""

    def __init__(self, require_keys: bool | None, telemetry: Telemetry) -> None:
        self.ring = KeyRing(require_keys)
        self._denied = telemetry.denied
        self._throttled = telemetry.throttled

    def open(self, control: Control) -> None:
        self.ring.open(control)

    def close(self) -> None:
        self.ring.close()

    def authorize(
        self, authorization: Sequence[str], names: Sequence[tuple[str, str]], roles: Sequence[Role]
    ) -> Caller:
        """The caller, from Authorization values and (where, project) pairs; ``roles``: any of them will do.

        Raises Unauthenticated, Forbidden, BadProject.
        """
        try:
            held = self.ring.verify(_token(authorization)) if self.ring.required else None
            named = _project(names)
            return Caller(named) if held is None else _bound(held, named, roles)
        except (Unauthenticated, Forbidden) as error:
            self._denied.labels(error.reason).inc()
            raise

    def check_quota(self, caller: Caller) -> None:
        """Raises QuotaExceeded while the quota of the caller's key is used up."""
        if caller.held is None:
            return
        try:
            caller.held.check()
        except QuotaExceeded as error:
            self._throttled.labels(caller.held.key.id, error.quota).inc()
            raise


def _bound(held: HeldKey, named: str, roles: Sequence[Role]) -> Caller:
    key = held.key
    if not key.may(roles):
        raise Forbidden(
            "role", f"expected a key with the role {' or '.join(roles)}, {key.id} has {', '.join(key.roles)}"
        )
    if named and named != key.project:
        raise Forbidden("project", f"the key {key.id} is of project {key.project}, the request names {named}")
    return Caller(key.project, held)


def _token(authorization: Sequence[str]) -> str | None:
    if len(authorization) != 1:
        return None
    scheme, _, token = authorization[0].strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _project(names: Sequence[tuple[str, str]]) -> str:
    for where, name in names:
        if not is_project(name):
            raise BadProject(f"{where}: expected 1 to 64 of A-Z a-z 0-9 . _ -, got {name!r:.80}")
    different = dict.fromkeys(name for _, name in names)
    if len(different) > 1:
        raise BadProject(f"{PROJECT_HEADER}, {PROJECT_QUERY}: expected one project, got {' and '.join(different):.200}")
    return next(iter(different), "")
