"""What a key may send: events per second as a token bucket, bytes per day as a counter of the UTC day.

How many events a body holds is known only when it has been read. So a request is let in while the quota is not used up
and charged afterwards; what it took too much is a debt that later requests wait for. No batch is too large to ever
come in, and over time no more passes than was granted.
"""

from __future__ import annotations

import math
import threading
import time
from datetime import UTC, datetime

from collector.keys import ApiKey

#: A bucket holds so many seconds' worth of events: what a sender saved up while it was silent.
BURST_S = 10.0
_DAY_S = 86_400


class QuotaExceeded(RuntimeError):  # noqa: N818 - a state
    """A key has used up what it was granted; the sender should come again after ``retry_after_s``."""

    def __init__(self, quota: str, granted: float, retry_after_s: int) -> None:
        super().__init__(f"the key's quota {quota} = {granted:g} is used up")
        self.quota = quota
        self.retry_after_s = retry_after_s


class Meter:
    """What one key has used. Safe to use from several threads."""

    def __init__(self, key: ApiKey) -> None:
        self._lock = threading.Lock()
        self._tokens = _burst(key)
        self._filled_at = time.monotonic()
        self.day = key.used_day
        self.bytes_today = key.used_bytes

    def check(self, key: ApiKey) -> None:
        """Raises QuotaExceeded when nothing may come in now."""
        if key.events_per_second is None and key.bytes_per_day is None:
            return
        with self._lock:
            self._turn()
            if key.bytes_per_day is not None and self.bytes_today >= key.bytes_per_day:
                raise QuotaExceeded("bytes_per_day", key.bytes_per_day, math.ceil(_DAY_S - time.time() % _DAY_S))
            if key.events_per_second is not None:
                self._fill(key)
                if self._tokens <= 0:
                    wait = (1 - self._tokens) / key.events_per_second
                    raise QuotaExceeded("events_per_second", key.events_per_second, max(1, math.ceil(wait)))

    def charge(self, key: ApiKey, events: int, size: int) -> None:
        """Count what was taken: accepted events, and bytes after decompression."""
        with self._lock:
            self._turn()
            self.bytes_today += size
            if key.events_per_second is not None:
                self._fill(key)
                self._tokens -= events

    def _fill(self, key: ApiKey) -> None:
        now = time.monotonic()
        gained = (now - self._filled_at) * (key.events_per_second or 0.0)
        self._tokens = min(_burst(key), self._tokens + gained)
        self._filled_at = now

    def _turn(self) -> None:
        today = datetime.now(UTC).date().isoformat()
        if self.day != today:
            self.day, self.bytes_today = today, 0


def _burst(key: ApiKey) -> float:
    return max(1.0, BURST_S * (key.events_per_second or 0.0))
