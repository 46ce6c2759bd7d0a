"""The collector's ways in over HTTP: OTLP, native events, the registry, and what says how it fares."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, FastAPI, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from prometheus_client import CONTENT_TYPE_LATEST

from collector.body import TooLarge, inflate, media_type
from collector.decode import is_project
from collector.events_in import Item, Layout, ParsedEvents, Rejection, read_items
from collector.otlp import logs_response, traces_response
from collector.problems import JSON, NDJSON, PROTOBUF, StatusRoute, invalid, overloaded, unsupported
from collector.registry import Answer
from collector.service import Collector, OtlpEncoding
from pickwise.events import DEFAULT_PROJECT, MAX_REQUEST_BYTES, EventError, parse_instant

T = TypeVar("T")

PROJECT_HEADER = "X-Pickwise-Project"
#: Longer bodies are judged outside the event loop; compressed ones, which may grow a thousandfold, inflated there too.
_INLINE_BYTES = 256 * 1024
_INLINE_COMPRESSED_BYTES = 16 * 1024
_INLINE_REJECTIONS = 1_000
_REFRESH_TIMEOUT_S = 60.0

_OTLP_MEDIA: dict[str, OtlpEncoding] = {PROTOBUF: "protobuf", JSON: "json"}
_EVENT_MEDIA: dict[str, Layout] = {JSON: "json", NDJSON: "ndjson"}

Submit = Callable[[bytes, OtlpEncoding, str], tuple[Any, Future[int] | None]]
Respond = Callable[[Any, OtlpEncoding], bytes]
ProjectHeader = Annotated[
    str | None, Header(alias=PROJECT_HEADER, description="1 to 64 of A-Z a-z 0-9 . _ -; absent: `default`")
]


class _Intake:
    """What the routes share: the collector and its counters."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector

    async def read(self, request: Request, media: Sequence[str]) -> tuple[str, bytes, str]:
        """The media type, the raw body and its coding. Raises Problem for other media types and bodies too long."""
        found = media_type(request.headers.get("content-type", ""))
        if found not in media:
            raise unsupported(f"content-type: expected {' or '.join(media)}, got {found!r:.60}")
        return found, await _raw_body(request), request.headers.get("content-encoding", "")

    async def judge(self, raw: bytes, coding: str, step: Callable[[bytes], T]) -> T:
        """Inflate and judge a body, outside the event loop where that may take long."""
        limit = _INLINE_COMPRESSED_BYTES if coding else _INLINE_BYTES
        if len(raw) > limit:
            return await run_in_threadpool(lambda: step(inflate(raw, coding)))
        body = inflate(raw, coding)
        return step(body) if len(body) <= _INLINE_BYTES else await run_in_threadpool(step, body)

    async def counted(self, way: str, answer: Awaitable[Response]) -> Response:
        """The answer, counted under its way in and outcome."""
        requests = self.collector.telemetry.requests
        try:
            response = await answer
        except Exception:
            requests.labels(way, "refused").inc()
            raise
        requests.labels(way, "accepted" if response.status_code < 300 else "refused").inc()
        return response


def ingest_router(collector: Collector) -> APIRouter:
    """The routes of a started collector."""
    router = APIRouter(route_class=StatusRoute)
    intake = _Intake(collector)
    _add_otlp(router, intake)
    _add_events(router, intake)
    _add_registry(router, intake)
    _add_health(router, collector)
    return router


def create_collector_app(collector: Collector) -> FastAPI:
    """The collector alone as an application."""
    app = FastAPI(title="Pickwise collector")
    app.include_router(ingest_router(collector))
    return app


def _add_otlp(router: APIRouter, intake: _Intake) -> None:
    collector = intake.collector

    async def export(request: Request, project: str | None, submit: Submit, respond: Respond) -> Response:
        named = _project(project)
        media, raw, coding = await intake.read(request, tuple(_OTLP_MEDIA))
        encoding = _OTLP_MEDIA[media]
        # An empty body is an empty request, which is a good one.
        parsed, future = await intake.judge(
            raw, coding, lambda body: submit(body if body or encoding == "protobuf" else b"{}", encoding, named)
        )
        await _durable(future)
        return Response(respond(parsed, encoding), media_type=media)

    @router.post("/v1/traces", tags=["ingest"], openapi_extra=_takes(PROTOBUF, JSON))
    async def post_traces(request: Request, project: ProjectHeader = None) -> Response:
        """OTLP/HTTP: an ExportTraceServiceRequest, protobuf or JSON, plain, gzip or deflate."""
        answer = export(request, project, collector.submit_traces, traces_response)
        return await intake.counted("http_traces", answer)

    @router.post("/v1/logs", tags=["ingest"], openapi_extra=_takes(PROTOBUF, JSON))
    async def post_logs(request: Request, project: ProjectHeader = None) -> Response:
        """OTLP/HTTP: an ExportLogsServiceRequest with `gen_ai.evaluation.result` events."""
        answer = export(request, project, collector.submit_logs, logs_response)
        return await intake.counted("http_logs", answer)


def _add_events(router: APIRouter, intake: _Intake) -> None:
    collector = intake.collector

    async def take(request: Request, project: str | None) -> Response:
        named = _project(project)
        media, raw, coding = await intake.read(request, tuple(_EVENT_MEDIA))
        parsed, future = await intake.judge(
            raw, coding, lambda body: collector.submit_events(body, _EVENT_MEDIA[media], named)
        )
        skills, refused = await _skills(parsed, named)
        await _durable(future)
        rejected = [*parsed.rejected, *refused]
        if len(rejected) <= _INLINE_REJECTIONS:
            return _events_answer(parsed.accepted + skills, rejected)
        return await run_in_threadpool(_events_answer, parsed.accepted + skills, rejected)

    async def _skills(parsed: ParsedEvents, named: str) -> tuple[int, list[Rejection]]:
        if not parsed.skills:
            return 0, []
        return await run_in_threadpool(collector.submit_skills, parsed, named)

    @router.post("/v1/events", tags=["ingest"], openapi_extra=_takes(JSON, NDJSON))
    async def post_events(request: Request, project: ProjectHeader = None) -> Response:
        """Native events: one object, an array, or one a line. 400 when none was acceptable."""
        return await intake.counted("http_events", take(request, project))


def _add_registry(router: APIRouter, intake: _Intake) -> None:
    registry = intake.collector.registry

    async def write(request: Request, project: str | None, change: Callable[[str, list[Item]], Answer]) -> Response:
        named = _project(project) or DEFAULT_PROJECT
        media, raw, coding = await intake.read(request, tuple(_EVENT_MEDIA))
        items = await intake.judge(raw, coding, lambda body: list(read_items(body, _EVENT_MEDIA[media])))
        answer = await run_in_threadpool(change, named, items)
        return _json(answer, 400 if answer.rejected and not answer.accepted else 200)

    @router.put("/v1/registry", tags=["registry"], openapi_extra=_takes(JSON, NDJSON))
    async def put_registry(request: Request, project: ProjectHeader = None, strict: bool = False) -> Response:
        """Replace the project's whole registry. `strict` refuses it when the review finds errors."""
        answer = write(request, project, lambda named, items: registry.replace(named, items, strict=strict))
        return await intake.counted("http_registry", answer)

    @router.post("/v1/registry", tags=["registry"], openapi_extra=_takes(JSON, NDJSON))
    async def post_registry(request: Request, project: ProjectHeader = None, strict: bool = False) -> Response:
        """Add entries to the project's registry, or replace those of the same `skill_id`."""
        answer = write(request, project, lambda named, items: registry.upsert(named, items, strict=strict))
        return await intake.counted("http_registry", answer)

    @router.get("/v1/registry", tags=["registry"])
    async def get_registry(
        project: ProjectHeader = None,
        at: Annotated[str | None, Query(description="RFC 3339 or Unix nanoseconds; absent: now")] = None,
    ) -> Response:
        """The entries that hold now, or held at a time; learned ones where the project has declared none."""
        named = _project(project) or DEFAULT_PROJECT
        moment = _time(at)
        return _json(await run_in_threadpool(intake.collector.registry_document, named, moment))

    @router.delete("/v1/registry/{skill_id:path}", tags=["registry"])
    async def delete_skill(skill_id: str, project: ProjectHeader = None) -> Response:
        """Retire an entry; 404 when there is none."""
        return _json(await run_in_threadpool(registry.retire, _project(project) or DEFAULT_PROJECT, skill_id))


def _add_health(router: APIRouter, collector: Collector) -> None:
    @router.post("/v1/refresh", tags=["service"])
    async def post_refresh() -> Response:
        """Answers when all that was acknowledged before is visible."""
        if not await run_in_threadpool(collector.refresh, _REFRESH_TIMEOUT_S):
            raise overloaded(f"what was acknowledged is not visible after {_REFRESH_TIMEOUT_S:.0f} s", 10)
        return _json({"visible": True})

    @router.get("/healthz", tags=["service"])
    async def get_healthz() -> Response:
        """200 while the process answers."""
        return _json({"status": "ok"})

    @router.get("/readyz", tags=["service"])
    async def get_readyz() -> Response:
        """200 while events can be taken, else 503 with the reason."""
        trouble = collector.trouble
        return _json({"status": "ready"} if trouble is None else {"status": trouble}, 200 if trouble is None else 503)

    @router.get("/metrics", tags=["service"])
    async def get_metrics() -> Response:
        """The collector's own counters as Prometheus text."""
        return Response(collector.telemetry.exposition(), media_type=CONTENT_TYPE_LATEST)


async def _raw_body(request: Request) -> bytes:
    """The body as it came, refused as soon as it is longer than any good one."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > MAX_REQUEST_BYTES:
        raise TooLarge
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_REQUEST_BYTES:
            raise TooLarge
        parts.append(part)
    return b"".join(parts)


async def _durable(future: Future[int] | None) -> None:
    if future is not None:
        await asyncio.wrap_future(future)


def _project(header: str | None) -> str:
    """The named project, '' where none is. Raises Problem for a name that is none."""
    if header is None:
        return ""
    if not is_project(header):
        raise invalid(f"{PROJECT_HEADER}: expected 1 to 64 of A-Z a-z 0-9 . _ -, got {header!r:.80}")
    return header


def _time(at: str | None) -> int | None:
    if at is None:
        return None
    try:
        return parse_instant(at)
    except EventError as error:
        raise invalid(f"at: {str(error).removeprefix('time: ')}") from error


def _events_answer(accepted: int, rejected: list[Rejection]) -> Response:
    document = {"accepted": accepted, "rejected": sorted(rejected, key=lambda refused: refused.index)}
    return _json(document, 400 if rejected and not accepted else 200)


def _json(document: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(document), status, media_type=JSON)


def _takes(*media: str) -> dict[str, Any]:
    """The OpenAPI description of a raw body."""
    return {"requestBody": {"required": True, "content": {name: {} for name in media}}}
