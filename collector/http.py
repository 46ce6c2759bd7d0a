"""The collector's ways in over HTTP: OTLP, native events, the registry, and what says how it fares."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Annotated, Any, NamedTuple

import msgspec
from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException as StarletteException

from collector.access import Caller
from collector.callers import Administrator, DirectRoute, Reader, Sender, SenderOrReader, guard
from collector.events_in import Item, Layout, Rejection, read_items
from collector.problems import (
    JSON,
    NDJSON,
    PROTOBUF,
    REFUSALS,
    StatusRoute,
    invalid,
    outcome_of,
    overloaded,
    render_invalid,
    render_unrouted,
)
from collector.reception import Reception, Signal, logs, metrics, traces
from collector.registry import Answer
from collector.service import Collector, OtlpEncoding
from collector.weight import refuse_heavy_json
from pickwise.events import EventError, parse_instant

#: Refused events that an answer names; the others are counted.
MAX_NAMED = 10_000
_INLINE_REJECTIONS = 1_000
_REFRESH_TIMEOUT_S = 60.0
#: Refreshes that wait at once: threads that do nothing, kept apart from those that answer questions.
_REFRESHES = 8

_OTLP_MEDIA: dict[str, OtlpEncoding] = {PROTOBUF: "protobuf", JSON: "json"}
_EVENT_MEDIA: dict[str, Layout] = {JSON: "json", NDJSON: "ndjson"}
#: Registry entries among events say so; bringing one in waits for the disk.
_SKILL_MARK = b'"skill"'
_ANY = b""

_Endpoint = Callable[[Request, Caller], Awaitable[Response]]


def add_collector(app: FastAPI, collector: Collector) -> None:
    """Give an application the routes of a started collector, and the keys and the refusals that go with them."""
    guard(app, collector.access)
    app.add_exception_handler(StarletteException, render_unrouted)
    app.add_exception_handler(RequestValidationError, render_invalid)
    reception = Reception(collector)
    # Not in a router of their own, which would take its time to find them.
    _add_otlp(app.router, reception)
    _add_events(app.router, reception)
    router = APIRouter(route_class=StatusRoute)
    _add_registry(router, reception)
    _add_health(router, collector)
    app.include_router(router)


def create_collector_app(collector: Collector) -> FastAPI:
    """The collector alone as an application."""
    app = FastAPI(title="Pickwise collector", responses=REFUSALS)
    add_collector(app, collector)
    return app


def _add_otlp(router: APIRouter, reception: Reception) -> None:
    collector = reception.collector

    async def export(request: Request, caller: Caller, signal: Signal) -> Response:
        async with reception.received(request, caller, tuple(_OTLP_MEDIA)) as received:
            encoding = _OTLP_MEDIA[received.media]
            # An empty body is an empty request, which is a good one.
            empty = b"" if encoding == "protobuf" else b"{}"
            taken = await reception.judged(received, lambda body: signal.take(caller, body or empty, encoding))
            await _durable(taken.durable)
            return Response(taken.answer, media_type=received.media)

    @_way_in(router, "/v1/traces", _OTLP)
    async def post_traces(request: Request, caller: Sender) -> Response:
        """OTLP/HTTP: an ExportTraceServiceRequest, protobuf or JSON, plain, gzip or deflate."""
        return await _counted(collector, "http_traces", export(request, caller, traces(collector)))

    @_way_in(router, "/v1/logs", _OTLP)
    async def post_logs(request: Request, caller: Sender) -> Response:
        """OTLP/HTTP: an ExportLogsServiceRequest with `gen_ai.evaluation.result` events."""
        return await _counted(collector, "http_logs", export(request, caller, logs(collector)))

    @_way_in(router, "/v1/metrics", _OTLP)
    async def post_metrics(request: Request, caller: Sender) -> Response:
        """OTLP/HTTP: an ExportMetricsServiceRequest. No data point is taken, which the answer says: a partial success,
        so that exporters of default settings neither fail nor try again."""
        return await _counted(collector, "http_metrics", export(request, caller, metrics(collector)))


class _TakenEvents(NamedTuple):
    accepted: int
    rejected: list[Rejection]
    durable: Future[int] | None


def _add_events(router: APIRouter, reception: Reception) -> None:
    collector = reception.collector

    def submit(caller: Caller, layout: Layout, body: bytes) -> _TakenEvents:
        caller.charge(0, len(body))
        refuse_heavy_json(body, layout == "ndjson")
        parsed, durable = collector.submit_events(body, layout, caller.named, caller.is_bound, caller.imports)
        skills, refused = collector.submit_skills(parsed, caller.named)
        caller.charge(parsed.accepted + skills, 0)
        return _TakenEvents(parsed.accepted + skills, [*parsed.rejected, *refused], durable)

    async def take(request: Request, caller: Caller) -> Response:
        async with reception.received(request, caller, tuple(_EVENT_MEDIA)) as received:
            layout = _EVENT_MEDIA[received.media]
            taken = await reception.judged(received, lambda body: submit(caller, layout, body), _SKILL_MARK)
            await _durable(taken.durable)
            if len(taken.rejected) <= _INLINE_REJECTIONS:
                return _events_answer(taken.accepted, taken.rejected)
            return await run_in_threadpool(_events_answer, taken.accepted, taken.rejected)

    @_way_in(router, "/v1/events", _takes(JSON, NDJSON))
    async def post_events(request: Request, caller: Sender) -> Response:
        """Native events: one object, an array, or one a line. 400 when none was acceptable."""
        return await _counted(collector, "http_events", take(request, caller))


def _add_registry(router: APIRouter, reception: Reception) -> None:
    collector = reception.collector
    registry = collector.registry

    async def write(request: Request, caller: Caller, change: Callable[[str, list[Item]], Answer]) -> Response:
        async with reception.received(request, caller, tuple(_EVENT_MEDIA)) as received:
            layout = _EVENT_MEDIA[received.media]

            def bring(body: bytes) -> Response:
                caller.charge(0, len(body))
                refuse_heavy_json(body, layout == "ndjson")
                answer = change(caller.project, list(read_items(body, layout)))
                caller.charge(answer.accepted, 0)
                return _json(answer, 400 if answer.rejected and not answer.accepted else 200)

            return await reception.judged(received, bring, _ANY)

    @router.put("/v1/registry", tags=["registry"], openapi_extra=_takes(JSON, NDJSON))
    async def put_registry(request: Request, caller: Administrator, strict: bool = False) -> Response:
        """Replace the project's whole registry. `strict` refuses it when the review finds errors."""
        answer = write(request, caller, lambda named, items: registry.replace(named, items, strict=strict))
        return await _counted(collector, "http_registry", answer)

    @router.post("/v1/registry", tags=["registry"], openapi_extra=_takes(JSON, NDJSON))
    async def post_registry(request: Request, caller: Sender, strict: bool = False) -> Response:
        """Add entries to the project's registry, or replace those of the same `skill_id`."""
        answer = write(request, caller, lambda named, items: registry.upsert(named, items, strict=strict))
        return await _counted(collector, "http_registry", answer)

    @router.get("/v1/registry", tags=["registry"])
    async def get_registry(
        caller: Reader,
        at: Annotated[str | None, Query(description="RFC 3339 or Unix nanoseconds; absent: now")] = None,
    ) -> Response:
        """The entries that hold now, or held at a time; learned ones where the project has declared none."""
        moment = _time(at)
        return _json(await run_in_threadpool(collector.registry_document, caller.project, moment))

    @router.delete("/v1/registry/{skill_id:path}", tags=["registry"])
    async def delete_skill(skill_id: str, caller: Administrator) -> Response:
        """Retire an entry; 404 when there is none."""
        return _json(await run_in_threadpool(registry.retire, caller.project, skill_id))


def _add_health(router: APIRouter, collector: Collector) -> None:
    refreshes = CapacityLimiter(_REFRESHES)

    @router.post("/v1/refresh", tags=["service"])
    async def post_refresh(_caller: SenderOrReader) -> Response:
        """Answers when all that was acknowledged before is visible."""
        if not await to_thread.run_sync(collector.refresh, _REFRESH_TIMEOUT_S, limiter=refreshes):
            raise overloaded(f"what was acknowledged is not visible after {_REFRESH_TIMEOUT_S:.0f} s", 10)
        return _json({"visible": True})

    @router.head("/healthz", include_in_schema=False)
    @router.get("/healthz", tags=["service"])
    async def get_healthz() -> Response:
        """200 while the process answers. Needs no key."""
        return _json({"status": "ok"})

    @router.head("/readyz", include_in_schema=False)
    @router.get("/readyz", tags=["service"])
    async def get_readyz() -> Response:
        """200 while events can be taken, else 503 with the reason. Needs no key."""
        trouble = collector.trouble
        return _json({"status": "ready"} if trouble is None else {"status": trouble}, 200 if trouble is None else 503)

    @router.get("/metrics", tags=["service"], response_class=PlainTextResponse)
    async def get_metrics(_caller: Reader) -> Response:
        """The collector's own counters as Prometheus text, over all projects."""
        return Response(collector.telemetry.exposition(), media_type=CONTENT_TYPE_LATEST)


def _way_in(router: APIRouter, path: str, described: dict[str, Any]) -> Callable[[_Endpoint], _Endpoint]:
    """Declares an endpoint for the requests of agents, which also come with a slash at the end."""

    def declare(endpoint: _Endpoint) -> _Endpoint:
        for at, is_shown in ((path, True), (f"{path}/", False)):
            router.add_api_route(
                at,
                endpoint,
                methods=["POST"],
                tags=["ingest"],
                openapi_extra=described,
                include_in_schema=is_shown,
                route_class_override=DirectRoute,
            )
        return endpoint

    return declare


async def _counted(collector: Collector, way: str, answer: Awaitable[Response]) -> Response:
    """The answer, counted under its way in and outcome."""
    requests = collector.telemetry.requests
    try:
        response = await answer
    except Exception as error:
        requests.labels(way, outcome_of(error)).inc()
        raise
    requests.labels(way, "accepted" if response.status_code < 300 else "refused").inc()
    return response


async def _durable(future: Future[int] | None) -> None:
    if future is not None:
        await asyncio.wrap_future(future)


def _time(at: str | None) -> int | None:
    if at is None:
        return None
    try:
        return parse_instant(at)
    except EventError as error:
        raise invalid(f"at: {str(error).removeprefix('time: ')}") from error


def _events_answer(accepted: int, rejected: list[Rejection]) -> Response:
    document: dict[str, Any] = {
        "accepted": accepted,
        "rejected": sorted(rejected, key=lambda refused: refused.index)[:MAX_NAMED],
    }
    if len(rejected) > MAX_NAMED:
        document["rejected_count"] = len(rejected)
    return _json(document, 400 if rejected and not accepted else 200)


def _json(document: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(document), status, media_type=JSON)


def _takes(*media: str) -> dict[str, Any]:
    """The OpenAPI description of a raw body."""
    return {"requestBody": {"required": True, "content": {name: {} for name in media}}}


#: An OTLP request is answered in its own encoding.
_OTLP = _takes(PROTOBUF, JSON) | {"responses": {"200": {"content": {PROTOBUF: {}, JSON: {}}}}}
