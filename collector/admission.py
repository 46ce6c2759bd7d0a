"""Admission: how much may be read and judged at once, so that memory stays bounded however many send.

A request reserves its size before its body is read. What doesn't fit waits its turn for a moment, first come first
served, and is refused then: the sender comes again, and what it was about to send takes no memory here.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass

from collector.wal import Overloaded

#: How long a request waits for its turn, seconds: exporters give up after ten, with their own retries in between.
PATIENCE_S = 1.5
RETRY_AFTER_S = 1


class Admission:
    """A budget of bytes and requests, for the event loop and for threads alike."""

    def __init__(self, max_bytes: int, max_requests: int, patience_s: float = PATIENCE_S) -> None:
        self._max_bytes = max_bytes
        self._max_requests = max_requests
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._waiting: deque[_Turn] = deque()
        self.bytes = 0
        self.requests = 0
        self.refused = 0
        #: Held while a large body is in memory in its parsed form.
        self.heavy = threading.Lock()

    @asynccontextmanager
    async def entered(self, size: int) -> AsyncIterator[Seat]:
        """Hold a reservation of ``size`` bytes for as long as the block lasts. Raises Overloaded."""
        turn = self._ask(size)
        try:
            if not turn.came.done():
                # Unlike `wait_for` this leaves the future as it is: whether it was our turn is asked under the lock.
                await asyncio.wait([asyncio.wrap_future(turn.came)], timeout=self._patience_s)
        except asyncio.CancelledError:
            if not self._withdraw(turn):
                self._leave(size)
            raise
        with self._seat(turn) as seat:
            yield seat

    @contextmanager
    def entered_from_thread(self, size: int) -> Iterator[Seat]:
        """The same for a thread. Raises Overloaded."""
        turn = self._ask(size)
        with suppress(TimeoutError):
            turn.came.result(self._patience_s)
        with self._seat(turn) as seat:
            yield seat

    @contextmanager
    def _seat(self, turn: _Turn) -> Iterator[Seat]:
        if self._withdraw(turn):
            raise self._overloaded()
        seat = Seat(self, turn.size)
        try:
            yield seat
        finally:
            self._leave(seat.size)

    def _ask(self, size: int) -> _Turn:
        turn = _Turn(size, Future())
        with self._lock:
            if not self._waiting and self._fits(size):
                self._take(turn)
            elif len(self._waiting) >= self._max_requests:
                raise self._overloaded()
            else:
                self._waiting.append(turn)
        return turn

    def _fits(self, size: int) -> bool:
        # An empty house takes any size, else one longer than the budget could never come in.
        return not self.requests or (self.requests < self._max_requests and self.bytes + size <= self._max_bytes)

    def _take(self, turn: _Turn) -> None:
        self.bytes += turn.size
        self.requests += 1
        turn.came.set_result(None)

    def _withdraw(self, turn: _Turn) -> bool:
        """Wait no longer; False when it is our turn."""
        with self._lock:
            if turn.came.done():
                return False
            self._waiting.remove(turn)
            self._let_in()  # a smaller one behind it may fit
            return True

    def _leave(self, size: int) -> None:
        with self._lock:
            self.bytes -= size
            self.requests -= 1
            self._let_in()

    def _resize(self, change: int) -> None:
        with self._lock:
            self.bytes += change
            self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._fits(self._waiting[0].size):
            self._take(self._waiting.popleft())

    def _overloaded(self) -> Overloaded:
        self.refused += 1
        return Overloaded(f"{self.requests} requests of {self.bytes} bytes are being taken in", RETRY_AFTER_S)


@dataclass(eq=False, slots=True)
class _Turn:
    size: int
    came: Future[None]


class Seat:
    """A reservation that is held."""

    def __init__(self, admission: Admission, size: int) -> None:
        self._admission = admission
        self.size = size

    def resize(self, size: int) -> None:
        """Make it what the request turned out to take."""
        change, self.size = size - self.size, size
        self._admission._resize(change)
