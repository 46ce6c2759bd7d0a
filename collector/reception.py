"""How a request's body comes in: admitted, read, inflated and judged, each within bounds.

What is judged in a moment, as a request of an SDK's exporter is, is judged on the event loop, one after the other. What
takes longer goes to one thread, so that however many arrive, one of them is in memory in its parsed form; parsing holds
the interpreter's lock, more threads gain nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import Request
from starlette.requests import ClientDisconnect

from collector.access import Caller
from collector.body import TooLarge, inflate, media_type
from collector.otlp import logs_response, metrics_response, traces_response
from collector.problems import PROTOBUF, invalid, timed_out, unsupported
from collector.service import Collector, OtlpEncoding
from collector.weight import LIGHT_BYTES, LIGHT_RECORDS, count_byte, is_light_message
from pickwise.events import MAX_REQUEST_BYTES

T = TypeVar("T")

#: A body must have arrived this long after it was admitted, seconds: one that trickles holds a place that others want.
BODY_TIMEOUT_S = 30.0
#: JSON takes several times as long to judge as protobuf of the same length.
_LIGHT_JSON_BYTES = 256 * 1024
#: Stands at least once for each object of a JSON body.
_JSON_MARK = ord("{")
#: Compressed bodies, which may grow a thousandfold, are inflated on the event loop up to this length.
_LIGHT_COMPRESSED_BYTES = 16 * 1024
#: Threads that wait for the disk on behalf of small bodies, kept apart from those that answer questions.
_WAITS = 8


class Received(NamedTuple):
    """A body as it came."""

    caller: Caller
    media: str
    raw: bytes
    coding: str


class Taken(NamedTuple):
    """What an OTLP request came to: the answer, and the future of its log record, None where nothing was logged."""

    answer: bytes
    durable: Future[int] | None


class Signal(NamedTuple):
    """Traces, logs or metrics: how they are submitted, answered and counted."""

    name: str
    submit: Callable[[bytes, OtlpEncoding, str, bool, bool], tuple[Any, Future[int] | None]]
    respond: Callable[[Any, OtlpEncoding], bytes]
    total: Callable[[Any], int]

    def take(self, caller: Caller, body: bytes, encoding: OtlpEncoding) -> Taken:
        """Judge and log a request. Raises OtlpError, TooLarge, Overloaded."""
        caller.charge(0, len(body))
        parsed, durable = self.submit(body, encoding, caller.named, caller.is_bound, caller.imports)
        caller.charge(self.total(parsed) - parsed.rejected, 0)
        return Taken(self.respond(parsed, encoding), durable)


def traces(collector: Collector) -> Signal:
    return Signal("traces", collector.submit_traces, traces_response, lambda parsed: int(parsed.span_count))


def logs(collector: Collector) -> Signal:
    return Signal("logs", collector.submit_logs, logs_response, lambda parsed: int(parsed.record_count))


def metrics(collector: Collector) -> Signal:
    return Signal("metrics", collector.submit_metrics, metrics_response, lambda parsed: int(parsed.rejected))


class Reception:
    """What the routes of one collector share."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self._judge = ThreadPoolExecutor(1, thread_name_prefix="judge")
        self._waits = CapacityLimiter(_WAITS)

    @asynccontextmanager
    async def received(self, request: Request, caller: Caller, media: Sequence[str]) -> AsyncIterator[Received]:
        """The body, and room for it as long as the block lasts.

        Raises Problem for other media types, QuotaExceeded and Overloaded before the body is read, TooLarge.
        """
        found = _media_type(request)
        if found not in media:
            raise unsupported(f"content-type: expected {' or '.join(media)}, got {found!r:.60}")
        self.collector.access.check_quota(caller)
        announced = _announced(request)
        async with self.collector.admission.entered(announced) as seat:
            raw = await _read(request, MAX_REQUEST_BYTES)
            seat.resize(len(raw))
            yield Received(caller, found, raw, request.headers.get("content-encoding", ""))

    async def judged(self, received: Received, step: Callable[[bytes], T], waits_if: bytes | None = None) -> T:
        """What the step makes of the inflated body, outside the event loop where that takes long.

        ``waits_if``: for bodies with these bytes in them the step waits for the disk.
        """
        raw, coding = received.raw, received.coding
        if len(raw) <= (_LIGHT_COMPRESSED_BYTES if coding else LIGHT_BYTES):
            body = inflate(raw, coding)
            if is_light(body, received.media):
                if waits_if is None or waits_if not in body:
                    return step(body)
                return await to_thread.run_sync(step, body, limiter=self._waits)
            del body  # inflated again when its turn comes: many that wait must not hold so much
        return await asyncio.get_running_loop().run_in_executor(self._judge, self._heavy, raw, coding, step)

    def _heavy(self, raw: bytes, coding: str, step: Callable[[bytes], T]) -> T:
        with self.collector.admission.heavy:
            return step(inflate(raw, coding))


def is_light(body: bytes, media: str) -> bool:
    """Whether a body is judged in a moment."""
    if media == PROTOBUF:
        return is_light_message(body)
    return len(body) <= LIGHT_RECORDS or (
        len(body) <= _LIGHT_JSON_BYTES and count_byte(body, _JSON_MARK) <= LIGHT_RECORDS
    )


def _media_type(request: Request) -> str:
    """That of the body; headers that contradict each other are given as a list of what they say."""
    return ", ".join({media_type(value): None for value in request.headers.getlist("content-type")})


async def read_body(request: Request, limit: int) -> bytes:
    """The body as it came, refused as soon as it is longer than any good one. Raises TooLarge, Problem."""
    _announced(request, limit)
    return await _read(request, limit)


async def _read(request: Request, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise _too_large(limit)
                parts.append(part)
    except TimeoutError as error:
        raise timed_out(f"expected the whole body within {BODY_TIMEOUT_S:.0f} s") from error
    except ClientDisconnect as error:
        raise invalid("the sender closed the connection before its body had arrived") from error
    return b"".join(parts)


def _announced(request: Request, limit: int = MAX_REQUEST_BYTES) -> int:
    """The length that a request says its body has, the limit where it says none. Raises TooLarge."""
    declared = request.headers.get("content-length", "")
    if not (declared.isascii() and declared.isdigit()):
        return limit
    if len(declared) > len(str(limit)) or int(declared) > limit:
        raise _too_large(limit)
    return int(declared)


def _too_large(limit: int) -> TooLarge:
    return TooLarge() if limit == MAX_REQUEST_BYTES else TooLarge(f"expected at most {limit} bytes")
