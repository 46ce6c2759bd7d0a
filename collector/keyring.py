"""The keys of a folder as a running service needs them: in memory, and never older than a second or two."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from contextlib import suppress

import sqlalchemy as sa

from collector.control import Control, ControlUnusable
from collector.keys import ApiKey, KeyStore, Use, digest, split_key
from collector.quotas import Meter

logger = logging.getLogger(__name__)

#: How soon a key that was made or revoked beside the service is known, seconds.
POLL_S = 1.0
#: Uses are written down this often: ``last_used_at`` is coarse, and a restart forgets no more of a day's bytes.
NOTE_S = 30.0
#: What keeps the control state from being read or written for a moment, or for good.
_TROUBLE = (sa.exc.SQLAlchemyError, ControlUnusable)
_NOBODYS = ApiKey(id="", project="", name="", roles=(), secret_hash=digest(secrets.token_hex()), created_at=0.0)


class Unauthenticated(RuntimeError):  # noqa: N818 - a state
    """No key, or none that opens anything; ``reason`` is `missing`, `unknown`, `revoked` or `expired`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class HeldKey:
    """A key in use: what is stored of it and what it has used since."""

    def __init__(self, key: ApiKey) -> None:
        self.key = key
        self.meter = Meter(key)
        self.last_used_at = key.last_used_at
        self.noted_at = key.last_used_at

    def check(self) -> None:
        """Raises QuotaExceeded."""
        self.meter.check(self.key)

    def charge(self, events: int, size: int) -> None:
        self.meter.charge(self.key, events, size)


class KeyRing:
    """Tells whose key a request bears. ``open`` before use; safe to use from several threads.

    ``require`` None: keys are needed as soon as the folder has one. Revoked and expired ones count too, so that the
    last one's end closes the service instead of opening it.
    """

    def __init__(self, require: bool | None) -> None:
        self._require = require
        self._store: KeyStore | None = None
        self._held: dict[str, HeldKey] = {}
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def open(self, control: Control) -> None:
        """Read the keys and follow their changes from now on."""
        self._store = KeyStore(control)
        self.reload()
        self._closing.clear()
        self._thread = threading.Thread(target=self._follow, name="keys", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End following and write down what was used."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            with suppress(*_TROUBLE):  # a full disk must not keep the collector from stopping
                self._note()

    @property
    def required(self) -> bool:
        # A ring that is not open knows of no key, and so lets nobody in.
        return self._require if self._require is not None else bool(self._held) or self._store is None

    def verify(self, text: str | None) -> HeldKey:
        """The key that a bearer token is. Raises Unauthenticated."""
        if not text:
            raise Unauthenticated("missing", "expected `Authorization: Bearer KEY`, a key of `pickwise keys create`")
        key_id, secret = split_key(text) or ("", "")
        held = self._held.get(key_id)
        # An unknown id is compared too: the time of the answer doesn't tell which ids there are.
        if not (held.key if held else _NOBODYS).fits(secret) or held is None:
            raise Unauthenticated("unknown", "the key is not known here")
        now = time.time()
        state = held.key.state(now)
        if state != "active":
            raise Unauthenticated(state, f"the key {held.key.id} is {state}")
        held.last_used_at = now
        return held

    def reload(self) -> None:
        """Read the keys now."""
        assert self._store is not None, "the ring is not open"
        held = {}
        for key in self._store.all():
            held[key.id] = self._held.get(key.id) or HeldKey(key)
            held[key.id].key = key
        self._held = held

    def _follow(self) -> None:
        noted = time.monotonic()
        while not self._closing.wait(POLL_S):
            try:
                self.reload()
                if time.monotonic() - noted >= NOTE_S:
                    noted = time.monotonic()
                    self._note()
            except _TROUBLE as error:  # busy or full for a moment: the keys known so far hold
                logger.warning("the keys could not be read, those known before still hold: %s", error)

    def _note(self) -> None:
        assert self._store is not None, "the ring is not open"
        used = [held for held in self._held.values() if held.last_used_at != held.noted_at]
        if not used:
            return
        uses = {
            held.key.id: Use(held.last_used_at, held.meter.day, held.meter.bytes_today)
            for held in used
            if held.last_used_at is not None
        }
        self._store.note(uses)
        for held in used:
            held.noted_at = uses[held.key.id].last_used_at
