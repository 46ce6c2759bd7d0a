"""Keys as a running service knows them."""

from __future__ import annotations

import hmac
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector import keyring
from collector.control import Control
from collector.keyring import KeyRing, Unauthenticated
from collector.keys import KeyStore


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    opened = Control(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def ring(control: Control, monkeypatch: pytest.MonkeyPatch) -> Iterator[KeyRing]:
    monkeypatch.setattr(keyring, "POLL_S", 0.02)
    opened = KeyRing(None)
    opened.open(control)
    yield opened
    opened.close()


def refusal(ring: KeyRing, text: str | None) -> str:
    with pytest.raises(Unauthenticated) as refused:
        ring.verify(text)
    return refused.value.reason


def until(condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_key_made_and_revoked_beside_it_is_known(ring: KeyRing, control: Control) -> None:
    store = KeyStore(control)
    assert not ring.required
    key, text = store.create("p", ["ingest"])
    until(lambda: ring.required)
    assert ring.verify(text).key.project == "p"
    store.revoke(key.id)
    until(lambda: ring._held[key.id].key.revoked_at is not None)
    assert refusal(ring, text) == "revoked"
    assert ring.required, "the end of the last key must not open the service"


def test_refusals_tell_a_key_only_from_its_secret(ring: KeyRing, control: Control) -> None:
    _, text = KeyStore(control).create("p", ["read"], expires_at=time.time() + 0.01)
    time.sleep(0.02)
    ring.reload()
    assert refusal(ring, text) == "expired"
    assert [refusal(ring, given) for given in (None, "", "nonsense", text[:-1], text + "0", text.upper())] == [
        *("missing", "missing"),
        *("unknown",) * 4,
    ]
    assert refusal(ring, text[:16] + "0" * 64) == "unknown"
    assert refusal(ring, "pw_" + "0" * 12 + text[15:]) == "unknown"


def test_every_refusal_compares_in_constant_time(
    ring: KeyRing, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, text = KeyStore(control).create("p", ["read"])
    ring.reload()
    compared: list[tuple[int, int]] = []
    compare = hmac.compare_digest

    def spy(one: str, other: str) -> bool:
        compared.append((len(one), len(other)))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", spy)
    ring.verify(text)
    for wrong in (text[:16] + "0" * 64, "pw_" + "0" * 12 + text[15:], "nonsense"):
        assert refusal(ring, wrong) == "unknown"
    assert compared == [(64, 64)] * 4


@pytest.mark.parametrize(("require", "required"), [(True, True), (False, False)])
def test_the_setting_decides_before_the_keys_do(control: Control, require: bool, required: bool) -> None:
    KeyStore(control).create("p", ["read"])
    ring = KeyRing(require)
    assert ring.required is required
    ring.open(control)
    assert ring.required is required
    ring.close()


def test_a_ring_that_is_not_open_lets_nobody_in() -> None:
    assert KeyRing(None).required
    assert refusal(KeyRing(None), "pw_" + "0" * 12 + "_" + "0" * 64) == "unknown"


def test_uses_are_written_down_and_survive(control: Control) -> None:
    store = KeyStore(control)
    key, text = store.create("p", ["ingest"], bytes_per_day=1_000)
    idle, _ = store.create("p", ["ingest"])
    ring = KeyRing(None)
    ring.open(control)
    ring.verify(text).charge(1, 600)
    ring.close()
    stored = {found.id: found for found in store.all()}
    assert stored[idle.id].last_used_at is None
    assert stored[key.id].used_bytes == 600
    assert abs((stored[key.id].last_used_at or 0) - time.time()) < 60
    again = KeyRing(None)
    again.open(control)
    assert again.verify(text).meter.bytes_today == 600
    again.close()


def test_a_control_file_that_cannot_be_read_leaves_the_known_keys(
    ring: KeyRing, control: Control, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, text = KeyStore(control).create("p", ["read"])
    until(lambda: ring.required)
    import sqlalchemy as sa

    def busy(*_: Any) -> Any:
        raise sa.exc.OperationalError("select", {}, Exception("database is locked"))

    monkeypatch.setattr(KeyStore, "all", busy)
    until(lambda: "could not be read" in caplog.text)
    assert ring.verify(text).key.project == "p"
