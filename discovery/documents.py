"""A document that the service offers under an ETag: polled, and never lost once it was good."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import httpx
import msgspec

logger = logging.getLogger(__name__)

T = TypeVar("T")


class PolledDocument(Generic[T]):
    """Keeps the last good version of one document in memory and, with ``cache_path``, on disk.

    ``decode`` turns the parsed document (by default JSON) into what is kept; one that it refuses (``ValueError``)
    counts as a failed poll. ``error`` says why the newest poll failed, None when it did not. One that
    ``may_be_missing`` is not missed while there never was any.
    """

    def __init__(
        self,
        http: httpx.Client,
        path: str,
        decode: Callable[[Any], T],
        cache_path: Path | None = None,
        *,
        parse: Callable[[bytes], Any] = msgspec.json.decode,
        may_be_missing: bool = False,
    ) -> None:
        self._http = http
        self._path = path
        self._decode = decode
        self._cache_path = cache_path
        self._parse = parse
        self._may_be_missing = may_be_missing
        self._etag: str | None = None
        self._lock = threading.Lock()
        self.value: T | None = None
        self.error: str | None = None
        if cache_path is not None and cache_path.exists():
            self._load(cache_path)

    def refresh(self) -> bool:
        """Ask once; True when a new document was taken. Any failure keeps the last good one."""
        with self._lock:
            try:
                return self._poll()
            except (httpx.HTTPError, ValueError) as error:
                if self.error is None:
                    self._tell(error)
                self.error = f"{type(error).__name__}: {error}"
                return False

    def _tell(self, error: Exception) -> None:
        if self.value is not None:
            logger.warning("%s: %s; the last good version stays in use", self._path, error)
        elif self._may_be_missing and isinstance(error, httpx.TimeoutException):
            # The service makes the first one when it is asked for, which takes long where much has been logged.
            logger.info("%s: not ready yet; asked for again", self._path)
        else:
            logger.warning("%s: %s; asked for again", self._path, error)

    def _poll(self) -> bool:
        response = self._http.get(self._path, headers={"If-None-Match": self._etag} if self._etag else {})
        if response.status_code == httpx.codes.NOT_MODIFIED:
            self.error = None
            return False
        if response.status_code == httpx.codes.NOT_FOUND and self._may_be_missing and self.value is None:
            self.error = None
            return False
        response.raise_for_status()
        self.value = self._decode(self._parse(response.content))
        self._etag = response.headers.get("ETag")
        self.error = None
        if self._cache_path is not None:
            _write_whole(self._cache_path, response.content)
        return True

    def _load(self, path: Path) -> None:
        try:
            self.value = self._decode(self._parse(path.read_bytes()))
        except (OSError, ValueError) as error:
            logger.warning("%s: kept copy %s is not usable: %s", self._path, path, error)


class Poller:
    """A daemon thread that calls ``poll`` every ``interval_s`` seconds until it is stopped."""

    def __init__(self, poll: Callable[[], object], interval_s: float, name: str) -> None:
        self._poll = poll
        self._interval_s = interval_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"discovery-{name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            try:
                self._poll()
            except Exception:
                # One bad round must not end the polling for good.
                logger.exception("%s: poll failed", self._thread.name)


def _write_whole(path: Path, content: bytes) -> None:
    """Replace the file in one step, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.replace(path)
