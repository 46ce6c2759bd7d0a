"""Who a request comes from, by its key and the project that it names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.access import Access, BadProject, Caller, Forbidden
from collector.control import Control
from collector.keyring import Unauthenticated
from collector.keys import KeyStore
from collector.quotas import QuotaExceeded
from collector.telemetry import Telemetry

Named = list[tuple[str, str]]
HEADER, QUERY = "X-Pickwise-Project", "project"


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    opened = Control(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def access(control: Control, telemetry: Telemetry) -> Iterator[Access]:
    opened = Access(None, telemetry)
    opened.open(control)
    yield opened
    opened.close()


def made(access: Access, control: Control, **fields: Any) -> str:
    text = KeyStore(control).create(**({"project": "own", "roles": ["ingest"]} | fields))[1]
    access.ring.reload()
    return text


@pytest.mark.parametrize(
    ("names", "project"),
    [
        ([], "default"),
        ([(HEADER, "a")], "a"),
        ([(QUERY, "a")], "a"),
        ([(HEADER, "a"), (QUERY, "a"), (HEADER, "a")], "a"),
    ],
)
def test_without_keys_the_request_names_the_project(access: Access, names: Named, project: str) -> None:
    for authorization in ([], ["Bearer of another service"]):
        caller = access.authorize(authorization, names, ("admin",))
        assert (caller.project, caller.is_bound) == (project, False)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ([(HEADER, "a"), (QUERY, "b")], "one project, got a and b"),
        ([(QUERY, "a"), (QUERY, "b")], "one project, got a and b"),
        ([(HEADER, "")], f"{HEADER}: expected"),
        ([(QUERY, "../x")], f"{QUERY}: expected"),
        ([(HEADER, "a\n")], f"{HEADER}: expected"),
    ],
)
def test_names_that_are_none_or_two_are_refused(access: Access, control: Control, names: Named, says: str) -> None:
    with pytest.raises(BadProject, match=says):
        access.authorize([], names, ("read",))
    key = made(access, control)
    with pytest.raises(BadProject, match=says):
        access.authorize([f"Bearer {key}"], names, ("ingest",))


def test_a_key_decides_the_project(access: Access, control: Control) -> None:
    key = made(access, control)
    for authorization in (f"Bearer {key}", f"bearer   {key} "):
        for names in ([], [(HEADER, "own"), (QUERY, "own")]):
            caller = access.authorize([authorization], names, ("ingest",))
            assert (caller.project, caller.is_bound) == ("own", True)
    with pytest.raises(Forbidden, match="is of project own, the request names other"):
        access.authorize([f"Bearer {key}"], [(QUERY, "other")], ("ingest",))


def test_a_role_that_is_missing_is_named(access: Access, control: Control) -> None:
    key = made(access, control, roles=["ingest", "read"])
    with pytest.raises(Forbidden, match=r"expected a key with the role admin, \w+ has ingest, read"):
        access.authorize([f"Bearer {key}"], [], ("admin",))


def test_what_is_no_bearer_token_counts_as_none(access: Access, control: Control, telemetry: Telemetry) -> None:
    key = made(access, control)
    for authorization in ([], [""], ["Bearer"], ["Bearer "], [f"Basic {key}"], [key], [f"Bearer {key}"] * 2):
        with pytest.raises(Unauthenticated) as refused:
            access.authorize(authorization, [], ("ingest",))
        assert refused.value.reason == "missing"
    assert 'pickwise_denied_total{reason="missing"} 7.0' in telemetry.exposition().decode()


def test_a_quota_is_counted_by_key(access: Access, control: Control, telemetry: Telemetry) -> None:
    caller = access.authorize([f"Bearer {made(access, control, bytes_per_day=10)}"], [], ("ingest",))
    access.check_quota(caller)
    caller.charge(1, 10)
    with pytest.raises(QuotaExceeded, match="bytes_per_day = 10"):
        access.check_quota(caller)
    assert caller.held is not None
    counted = f'pickwise_throttled_total{{key="{caller.held.key.id}",quota="bytes_per_day"}} 1.0'
    assert counted in telemetry.exposition().decode()
    access.check_quota(Caller("own"))
