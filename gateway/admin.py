"""What an operator asks of a running service: forget a session, map archived requests anew, remove what is too old.

Each answers when it is done. One that the service's end interrupts is gone on with when it is next started.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from analytics.settle import remove_gone
from collector.access import PROJECT_QUERY
from collector.callers import Administrator, SenderOrReader
from collector.flusher import Interrupted
from collector.operations import ReplayRequest
from collector.problems import JSON, StatusRoute, invalid, overloaded
from collector.reception import read_body
from collector.service import Collector
from gateway.in_force import in_force
from pickwise.events import EventError, parse_instant, plain_reason

_MAX_BODY_BYTES = 64 * 1024
_SESSION_CHARS = 4_096
_RETRY_AFTER_S = 30
T = TypeVar("T")


class _Forget(msgspec.Struct, forbid_unknown_fields=True):
    session_id: Annotated[str, msgspec.Meta(min_length=1, max_length=_SESSION_CHARS)]


class _Replay(msgspec.Struct, forbid_unknown_fields=True, rename={"start": "from", "end": "to"}):
    start: str | None = None
    end: str | None = None
    dry_run: bool = False


class _Retention(msgspec.Struct, forbid_unknown_fields=True):
    dry_run: bool = False


def admin_router(collector: Collector) -> APIRouter:
    """The routes of a started collector; what changes or deletes is for keys with the role `admin`."""
    router = APIRouter(route_class=StatusRoute, tags=["admin"])

    @router.post("/v1/forget", openapi_extra=_takes(_Forget))
    async def post_forget(request: Request, caller: Administrator) -> Response:
        """Remove a session of the project from everywhere: `{"session_id": "…"}`."""
        asked = await _asked(request, _Forget)
        answer = await _report(await run_in_threadpool(collector.forget, caller.project, asked.session_id))
        await run_in_threadpool(remove_gone, collector.settings.data_dir)
        return answer

    @router.post("/v1/replay", openapi_extra=_takes(_Replay))
    async def post_replay(request: Request, caller: Administrator) -> Response:
        """Map the project's archived requests, received in [from, to), anew: `{"from", "to", "dry_run"}`, optional."""
        asked = await _asked(request, _Replay)
        start, end = _time("from", asked.start), _time("to", asked.end)
        if start is not None and end is not None and end < start:
            raise invalid(f"to: expected a time after from ({asked.start}), got {asked.end}")
        wanted = ReplayRequest(project=caller.project, start=start, end=end, dry_run=asked.dry_run)
        return await _report(await run_in_threadpool(collector.replay, wanted))

    @router.post("/v1/retention", openapi_extra=_takes(_Retention))
    async def post_retention(request: Request, caller: Administrator) -> Response:
        """Remove what is older than the settings say, as is done every hour: `{"dry_run"}`, optional."""
        asked = await _asked(request, _Retention)
        return await _report(collector.retain(caller.project, dry_run=asked.dry_run))

    @router.get("/v1/settings")
    async def get_settings(_caller: SenderOrReader) -> Response:
        """How what is sent is mapped, redacted and kept: the settings that the service took at its start."""
        return Response(msgspec.json.encode(in_force(collector.settings)), media_type=JSON)

    return router


async def _asked(request: Request, form: type[T]) -> T:
    """The body in its form; an empty one asks with what is assumed. Raises Problem, TooLarge."""
    # One that is passed over would do in earnest what `?dry_run=true` asks to try.
    misplaced = sorted({*request.query_params} - {PROJECT_QUERY})
    if misplaced:
        raise invalid(f"{misplaced[0]:.80}: expected in the JSON body; only {PROJECT_QUERY} may stand in the address")
    body = await read_body(request, _MAX_BODY_BYTES)
    try:
        return msgspec.json.decode(body or b"{}", type=form)
    except msgspec.ValidationError as error:
        raise invalid(plain_reason(str(error))) from error
    except msgspec.DecodeError as error:
        raise invalid(f"expected a JSON object: {error}") from error


async def _report(done: Future[Any]) -> Response:
    try:
        report = await asyncio.wrap_future(done)
    except Interrupted as error:
        raise overloaded(str(error), _RETRY_AFTER_S) from error
    return Response(msgspec.json.encode(report), media_type=JSON)


def _time(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_instant(text)
    except EventError as error:
        raise invalid(f"{name}: {str(error).removeprefix('time: ')}") from error


def _takes(form: type[msgspec.Struct]) -> dict[str, Any]:
    """The OpenAPI description of a body."""
    _, components = msgspec.json.schema_components([form])
    return {"requestBody": {"content": {JSON: {"schema": components[form.__name__]}}}}
