"""Passes the ranker's requests on to its process, over a Unix socket that stays open while that process restarts.

A request that comes meanwhile waits in the socket's queue. Plain HTTP/1.1 over a few kept connections: a general client
takes longer than ranking does, and this one talks to our own server only, which tells the length of each answer.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

from fastapi import Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from collector.access import PROJECT_HEADER, Caller
from collector.body import TooLarge
from collector.callers import require
from collector.problems import Problem, render_unrouted
from collector.reception import read_body
from pickwise.settings import Settings
from ranker.answering import MAX_BODY_BYTES, WeightsAnswers, refusal

#: A restart takes seconds, on a busy machine many; who waits longer is told to come again.
WAIT_S = 30.0
#: Weights are on the disk, so nobody needs to wait for them.
WEIGHTS_WAIT_S = 0.5
RETRY_AFTER_S = 2
#: Requests that wait at once, each with its body; beyond: 503.
MAX_WAITING = 256
#: Recalls passed on at once: each that waits for a history to load holds one of the ranker's few threads.
MAX_RECALLS = 2
#: A kept connection may have ended with the process, and the next one may end with the next.
_TRIES = 3
_PASSED_ON = ("if-none-match", "accept-encoding", "content-encoding")
_PASSED_BACK = (b"content-type", b"content-encoding", b"etag", b"cache-control", b"vary")


#: What a request waits for before it is passed on.
_Turn = AbstractAsyncContextManager[None]


class Unavailable(RuntimeError):  # noqa: N818 - a state
    """The ranker's process gave no answer in time; the message says why."""


class _Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class ForwardedAnswers(WeightsAnswers):
    """Answers as the ranker's process does; with weights from the disk while it can't."""

    def __init__(self, settings: Settings, path: Path) -> None:
        super().__init__(settings)
        self._path = str(path)
        self._idle: list[_Connection] = []
        self._waiting = 0
        self._recalls = asyncio.Semaphore(MAX_RECALLS)

    async def weights(self, request: Request, project: str) -> Response:
        try:
            return await self._forwarded(request, project, b"", WEIGHTS_WAIT_S, nullcontext())
        except Unavailable:
            return await super().weights(request, project)

    async def rank(self, request: Request, project: str) -> Response:
        return await self._or_503(request, project, nullcontext())

    async def recall(self, request: Request, project: str) -> Response:
        return await self._or_503(request, project, self._recalls)

    async def artefact(self, request: Request, project: str) -> Response:
        return await self._or_503(request, project, self._recalls)

    async def _or_503(self, request: Request, project: str, turn: _Turn) -> Response:
        try:
            body = await read_body(request, MAX_BODY_BYTES)
            return await self._forwarded(request, project, body, WAIT_S, turn)
        except TooLarge as error:
            return refusal(413, f"body: {error}")
        except Unavailable as error:
            return refusal(503, f"the ranker does not answer: {error}", {"Retry-After": str(RETRY_AFTER_S)})

    async def _forwarded(self, request: Request, project: str, body: bytes, wait_s: float, turn: _Turn) -> Response:
        if self._waiting >= MAX_WAITING:
            raise Unavailable(f"{MAX_WAITING} requests wait for it already")
        self._waiting += 1
        try:
            async with asyncio.timeout(wait_s), turn:
                return await self._tried(_encoded(request, project, body))
        except TimeoutError as error:
            raise Unavailable(f"not within {wait_s:g} s") from error
        except (OSError, EOFError) as error:
            raise Unavailable(str(error)) from error
        finally:
            self._waiting -= 1

    async def _tried(self, asked: bytes) -> Response:
        for _ in range(_TRIES - 1):
            try:
                return await self._exchange(asked)
            except (ConnectionError, EOFError):
                self._close_idle()  # they ended together
        return await self._exchange(asked)

    async def _exchange(self, asked: bytes) -> Response:
        connection = self._idle.pop() if self._idle else await self._connect()
        try:
            connection.writer.write(asked)
            answer = await _answer(connection.reader)
        except BaseException:
            connection.writer.close()
            raise
        self._idle.append(connection)
        return answer

    async def _connect(self) -> _Connection:
        return _Connection(*await asyncio.open_unix_connection(self._path, limit=MAX_BODY_BYTES))

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().writer.close()


class Shortcut:
    """Middleware that passes requests to rank and to recall on at once, as their routes would: to find a route, and
    what it is wrapped in, takes as long as passing on."""

    def __init__(self, app: ASGIApp, answers: ForwardedAnswers) -> None:
        self._app = app
        self._answers = {"/v1/rank": answers.rank, "/v1/recall": answers.recall}
        self._caller = require("read")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_asked = scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in self._answers
        if not is_asked:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            caller: Caller = await self._caller(request)
            response = await self._answers[scope["path"]](request, caller.project)
        except Problem as problem:
            response = await render_unrouted(request, problem)
        await response(scope, receive, send)


def _encoded(request: Request, project: str, body: bytes) -> bytes:
    query = request.scope["query_string"].decode("latin-1")
    lines = [
        f"{request.method} {request.scope['path']}{f'?{query}' if query else ''} HTTP/1.1",
        "host: ranker",
        f"{PROJECT_HEADER}: {project}",
        f"content-length: {len(body)}",
        *(f"{name}: {value}" for name in _PASSED_ON if (value := request.headers.get(name)) is not None),
    ]
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1") + body


async def _answer(reader: asyncio.StreamReader) -> Response:
    head = await reader.readuntil(b"\r\n\r\n")
    status_line, *lines = head[:-4].split(b"\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
    body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
    headers = {name.decode(): fields[name].decode("latin-1") for name in _PASSED_BACK if name in fields}
    return Response(body, int(status_line.split(b" ", 2)[1]), headers)
