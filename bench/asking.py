"""A client that takes little of the cores that it shares with what it measures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast


async def sent(
    address: int | Path, requests: Sequence[bytes], connections: int, seconds: float, count: int | None
) -> list[float]:
    """Latencies, seconds, of requests over so many connections; each once, or in turns for so many seconds."""
    latencies: list[float] = []
    number = iter(range(count if count is not None else 10_000_000))
    deadline = time.perf_counter() + (600 if count is not None else seconds)

    def following() -> bytes | None:
        index = next(number, None)
        return None if index is None or time.perf_counter() > deadline else requests[index % len(requests)]

    loop = asyncio.get_running_loop()
    asking = [_Asking(following, latencies) for _ in range(connections)]
    for one in asking:
        if isinstance(address, Path):
            await loop.create_unix_connection(lambda one=one: one, str(address))  # type: ignore[misc]
        else:
            await loop.create_connection(lambda one=one: one, "127.0.0.1", address)  # type: ignore[misc]
    await asyncio.gather(*(one.ended for one in asking))
    return latencies


class _Asking(asyncio.Protocol):
    """One connection that asks again when it has its answer, of which it reads status and length."""

    def __init__(self, following: Callable[[], bytes | None], latencies: list[float]) -> None:
        self._following, self._latencies = following, latencies
        self._head, self._left = b"", 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are of no common class
        self._ask()

    def data_received(self, data: bytes) -> None:
        if self._left:
            self._left -= len(data)
        else:
            self._head += data
            head, ended, body = self._head.partition(b"\r\n\r\n")
            if not ended:
                return
            if head.split(b" ", 2)[1] not in (b"200", b"304"):
                self._end(RuntimeError(head.decode("latin-1")))
                return
            length = head.lower().partition(b"content-length: ")[2].split(b"\r", 1)[0]
            self._head, self._left = b"", int(length or 0) - len(body)
        if not self._left:
            self._latencies.append(time.perf_counter() - self._began)
            self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error or ConnectionError("the service closed the connection"))

    def _ask(self) -> None:
        asked = self._following()
        if asked is None:
            self._end(None)
            return
        self._began = time.perf_counter()
        self._transport.write(asked)

    def _end(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None) if error is None else self.ended.set_exception(error)
        self._transport.close()
