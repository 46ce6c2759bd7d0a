"""Refusals of a request, as ``google.rpc.Status`` in the request's own encoding (OTLP/HTTP, "Failures")."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute
from google.rpc import code_pb2, status_pb2

from collector.body import ACCEPTED_CODINGS, CorruptBody, TooLarge, UnknownCoding, media_type
from collector.events_in import BodyError
from collector.otlp import OtlpError
from collector.registry import StrictRefusal, UnknownSkill
from collector.wal import Overloaded

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
NDJSON = "application/x-ndjson"


class Problem(Exception):  # noqa: N818 - an answer
    """A refusal: HTTP status, google.rpc code and a message that says what was expected."""

    def __init__(self, status: int, code: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers or {}


def invalid(message: str) -> Problem:
    return Problem(400, code_pb2.INVALID_ARGUMENT, message)


def unsupported(message: str) -> Problem:
    return Problem(415, code_pb2.INVALID_ARGUMENT, message, {"Accept-Encoding": ACCEPTED_CODINGS})


def overloaded(reason: str, retry_after_s: int) -> Problem:
    return Problem(503, code_pb2.UNAVAILABLE, reason, {"Retry-After": str(retry_after_s)})


def problem_of(error: Exception) -> Problem | None:
    """The answer that an error of the collector means; None for one that is no refusal."""
    match error:
        case Problem():
            return error
        case Overloaded():
            return overloaded(error.reason, error.retry_after_s)
        case TooLarge():
            return Problem(413, code_pb2.RESOURCE_EXHAUSTED, str(error))
        case UnknownCoding():
            return unsupported(str(error))
        case UnknownSkill():
            return Problem(404, code_pb2.NOT_FOUND, str(error.args[0]))
        case CorruptBody() | BodyError() | OtlpError() | StrictRefusal():
            return invalid(str(error))
        case _:
            return None


def render(problem: Problem, media: str) -> Response:
    """The refusal as protobuf where the request was that, else as JSON."""
    if media == PROTOBUF:
        body = status_pb2.Status(code=problem.code, message=problem.message).SerializeToString()
        return Response(body, problem.status, problem.headers, PROTOBUF)
    body = msgspec.json.encode({"code": problem.code, "message": problem.message})
    return Response(body, problem.status, problem.headers, JSON)


class StatusRoute(APIRoute):
    """A route whose refusals are answered as ``google.rpc.Status``."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_refusals(request: Request) -> Response:
            try:
                return await handle(request)
            except Exception as error:
                problem = problem_of(error)
                if problem is None:
                    raise
                return render(problem, media_type(request.headers.get("content-type", "")))

        return handle_refusals
