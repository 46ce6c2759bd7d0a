"""API keys at rest: what is kept of them, and what they refuse to be."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.control import Control
from collector.keys import KeyProblem, KeyStore, UnknownKey, digest, has_active_key, split_key


@pytest.fixture
def store(tmp_path: Path) -> Iterator[KeyStore]:
    control = Control(tmp_path)
    yield KeyStore(control)
    control.close()


def test_a_key_is_kept_as_its_hash_alone(store: KeyStore, tmp_path: Path) -> None:
    key, text = store.create("p", ["ingest"], name="agents")
    parts = split_key(text)
    assert parts is not None
    assert (parts[0], digest(parts[1])) == (key.id, key.secret_hash)
    assert key.fits(parts[1])
    assert not key.fits(parts[1][:-1] + ("0" if parts[1][-1] != "0" else "1"))
    for file in tmp_path.iterdir():
        assert parts[1].encode() not in file.read_bytes(), file


def test_keys_differ_and_come_back_whole(store: KeyStore) -> None:
    made = [store.create("p", ["read", "ingest"], events_per_second=2.5, bytes_per_day=10**12)[0] for _ in range(3)]
    assert store.all() == made
    assert made[0].roles == ("ingest", "read")
    assert len({key.secret_hash for key in made}) == len({key.id for key in made}) == 3
    assert store.all("other") == []


@pytest.mark.parametrize("text", ["", "pw_", "pw_12_34", "sk-" + "a" * 40, "pw_" + "g" * 12 + "_" + "0" * 64])
def test_what_is_no_key(text: str) -> None:
    assert split_key(text) is None


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"roles": []}, "role"),
        ({"roles": ["owner"]}, "role"),
        ({"project": "../x"}, "project"),
        ({"name": "n" * 101}, "name"),
        ({"name": "two\nlines"}, "name"),
        ({"expires_at": 1.0}, "expires"),
        ({"events_per_second": 0.0}, "events_per_second"),
        ({"events_per_second": float("nan")}, "events_per_second"),
        ({"bytes_per_day": 0}, "bytes_per_day"),
        ({"bytes_per_day": 2**63}, "bytes_per_day"),
    ],
)
def test_a_bad_field_is_named(store: KeyStore, fields: dict[str, Any], names: str) -> None:
    good: dict[str, Any] = {"project": "p", "roles": ["read"]}
    with pytest.raises(KeyProblem, match=f"^{names}: expected"):
        store.create(**(good | fields))
    assert store.all() == []


def test_admin_stands_for_every_role(store: KeyStore) -> None:
    admin, reader = store.create("p", ["admin"])[0], store.create("p", ["read"])[0]
    assert all(admin.may([role]) for role in ("ingest", "read", "admin"))
    assert reader.may(["ingest", "read"])
    assert not reader.may(["ingest"])
    assert not reader.may(["admin"])


def test_states(store: KeyStore) -> None:
    now = time.time()
    key, _ = store.create("p", ["read"], expires_at=now + 60)
    assert [key.state(now), key.state(now + 61)] == ["active", "expired"]
    revoked = store.revoke(key.id)
    assert revoked.state(now) == revoked.state(now + 61) == "revoked"
    assert store.revoke(key.id).revoked_at == revoked.revoked_at
    with pytest.raises(UnknownKey, match="keys list"):
        store.revoke("000000000000")


def test_whether_a_folder_has_an_active_key(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    assert not has_active_key(folder)
    assert not folder.exists()
    control = Control(folder)
    assert not has_active_key(folder)
    key, _ = KeyStore(control).create("p", ["read"])
    assert has_active_key(folder)
    KeyStore(control).revoke(key.id)
    assert not has_active_key(folder)
    control.close()
