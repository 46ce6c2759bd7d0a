"""The ranker's HTTP routes: who answers is told, the ranker itself or who asks its process (``gateway.forward``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
from fastapi import APIRouter, FastAPI, Request, Response
from starlette.types import Receive, Scope, Send

from collector.callers import DirectRoute, Reader
from ranker.artefacts import MEDIA_TYPE
from ranker.rank import RankRequest
from ranker.recall import RecallRequest

JSON = "application/json"
Answer = Callable[[Request, str], Awaitable[Response]]


class Answers(Protocol):
    """Answers a request for a project."""

    async def weights(self, request: Request, project: str) -> Response: ...

    async def rank(self, request: Request, project: str) -> Response: ...

    async def recall(self, request: Request, project: str) -> Response: ...

    async def artefact(self, request: Request, project: str) -> Response: ...


def add_ranker(app: FastAPI, answers: Answers) -> None:
    """Give an application the ranker's routes."""
    # Not in a router of their own, which would take its time to find them.
    declare = app.router
    _add(declare, "GET", "/v1/weights", answers.weights, "The weights of a project: current, or one version", _READ)
    _add(declare, "POST", "/v1/rank", answers.rank, "Rank candidates by what was learned", _takes(RankRequest))
    _add(declare, "POST", "/v1/recall", answers.recall, "Find skills by their history", _takes(RecallRequest))
    _add(
        declare,
        "GET",
        "/v1/recall/artefact",
        answers.artefact,
        "The vectors that recall compares queries with, as an Arrow IPC file: current, or one version",
        _READ | {"responses": {"200": {"description": "The file", "content": {MEDIA_TYPE: {}}}} | _UNCHANGED},
    )


def _add(router: APIRouter, method: str, path: str, answer: Answer, summary: str, described: dict[str, Any]) -> None:
    async def endpoint(request: Request, caller: Reader) -> Response:
        return await answer(request, caller.project)

    router.add_api_route(
        path,
        endpoint,
        methods=[method],
        summary=summary,
        name=answer.__name__,
        tags=["ranker"],
        responses=_REFUSALS if method == "POST" else None,
        openapi_extra=described,
        route_class_override=_LeanRoute,
    )


class _LeanRoute(DirectRoute):
    """A route for many requests, whose refusals are answered as FastAPI answers its own."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        response = await self._direct(Request(scope, receive))
        await response(scope, receive, send)


def _takes(form: type[msgspec.Struct]) -> dict[str, Any]:
    """The OpenAPI description of a body."""
    (schema,), components = msgspec.json.schema_components([form], ref_template="#/components/schemas/{name}")
    return {"requestBody": {"required": True, "content": {JSON: {"schema": _resolved(schema, components)}}}}


def _resolved(schema: Any, components: dict[str, Any]) -> Any:
    """The schema with what it refers to in its place."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            return _resolved(components[schema["$ref"].rpartition("/")[2]], components)
        return {key: _resolved(value, components) for key, value in schema.items()}
    return [_resolved(item, components) for item in schema] if isinstance(schema, list) else schema


def _refusal(why: str) -> dict[str, Any]:
    detail = {"type": "object", "properties": {"detail": {"type": "string"}}, "required": ["detail"]}
    return {"description": why, "content": {JSON: {"schema": detail}}}


_REFUSALS: dict[int | str, dict[str, Any]] = {
    400: _refusal("The body is no JSON"),
    413: _refusal("The body is larger than 1 MiB, before or after decompression"),
    422: _refusal("What is wrong with which field; there may be 200 candidates"),
    503: _refusal("The ranker does not answer, Retry-After says when to come again"),
}
_UNCHANGED: dict[str, Any] = {"304": {"description": "If-None-Match names what is current"}}
_READ: dict[str, Any] = {
    "parameters": [
        {
            "name": "version",
            "in": "query",
            "required": False,
            "description": "one version instead of the current one",
            "schema": {"type": "string"},
        },
        {"name": "If-None-Match", "in": "header", "required": False, "schema": {"type": "string"}},
    ],
    "responses": _UNCHANGED,
}
