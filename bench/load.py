"""A client that posts ready bodies over a few connections: it must cost little beside the server that it measures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec


class Sent(msgspec.Struct):
    """What came of a run. ``acknowledged`` counts requests answered with 200, ``latencies_s`` theirs."""

    seconds: float
    acknowledged: int
    refused: int
    latencies_s: list[float]


def post(
    port: int,
    bodies: Sequence[bytes],
    *,
    path: str = "/v1/traces",
    connections: int = 4,
    seconds: float = 60.0,
    rate: float | None = None,
    headers: Mapping[str, str] | None = None,
) -> Sent:
    """Post every body once, as fast as the answers come, or ``rate`` requests a second; stops after ``seconds``."""
    head = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-protobuf\r\n{head}"
    return asyncio.run(_post(port, bodies, head, connections, seconds, rate))


async def _post(
    port: int, bodies: Sequence[bytes], head: str, connections: int, seconds: float, rate: float | None
) -> Sent:
    sent = Sent(0.0, 0, 0, [])
    waiting = iter(enumerate(bodies))
    started = time.perf_counter()
    deadline = started + seconds

    async def due(number: int) -> None:
        if rate is not None:
            await asyncio.sleep(max(0.0, started + number / rate - time.perf_counter()))

    async def run(waiting: Iterator[tuple[int, bytes]]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number, body in waiting:
            await due(number)
            if time.perf_counter() > deadline:
                break
            began = time.perf_counter()
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
            writer.write(body)
            await writer.drain()
            status = await _answer(reader)
            if status == 200:
                sent.acknowledged += 1
                sent.latencies_s.append(time.perf_counter() - began)
            else:
                sent.refused += 1
        writer.close()

    await asyncio.gather(*(run(waiting) for _ in range(connections)))
    sent.seconds = time.perf_counter() - started
    return sent


async def _answer(reader: asyncio.StreamReader) -> int:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    status = int(head.split(" ", 2)[1])
    if "transfer-encoding: chunked" in head:
        while (size := int(await reader.readline(), 16)) or await reader.readline() != b"\r\n":
            if size:
                await reader.readexactly(size + 2)
            else:
                break
    elif "content-length: " in head:
        await reader.readexactly(int(head.partition("content-length: ")[2].split("\r", 1)[0]))
    return status
