"""Refusals of a request, as ``google.rpc.Status`` in the request's own encoding (OTLP/HTTP, "Failures")."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from google.protobuf import json_format
from google.rpc import code_pb2, error_details_pb2, status_pb2
from starlette.exceptions import HTTPException as StarletteException

from collector.access import BadProject, Forbidden
from collector.body import ACCEPTED_CODINGS, CorruptBody, TooLarge, UnknownCoding, media_type
from collector.events_in import BodyError
from collector.keyring import Unauthenticated
from collector.otlp import OtlpError
from collector.quotas import QuotaExceeded
from collector.registry import StrictRefusal, UnknownSkill
from collector.wal import Overloaded

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
NDJSON = "application/x-ndjson"


#: The refusals that any route may answer with, for OpenAPI.
REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The request cannot be read, or nothing in it was acceptable"},
    401: {"description": "A key is needed, and this is none"},
    403: {"description": "The key's role or project does not allow it"},
    404: {"description": "There is no such thing"},
    408: {"description": "The body did not come in time"},
    413: {"description": "The body is too large, before or after decompression, or holds too much"},
    415: {"description": "The media type or the coding of the body is not taken"},
    429: {"description": "The key's quota is used up; come again after Retry-After"},
    503: {"description": "Overloaded, or the disk is full; come again after Retry-After"},
}


class Problem(HTTPException):
    """A refusal: HTTP status, google.rpc code and a message that says what was expected.

    ``retry_after_s`` is set where the same request may be taken later. A route that isn't a StatusRoute answers it as
    FastAPI answers its own.
    """

    def __init__(
        self,
        status: int,
        code: int,
        message: str,
        headers: dict[str, str] | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        waiting = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
        super().__init__(status, message, (headers or {}) | waiting)
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s


def invalid(message: str) -> Problem:
    return Problem(400, code_pb2.INVALID_ARGUMENT, message)


def unsupported(message: str) -> Problem:
    return Problem(415, code_pb2.INVALID_ARGUMENT, message, {"Accept-Encoding": ACCEPTED_CODINGS})


def overloaded(reason: str, retry_after_s: int) -> Problem:
    return Problem(503, code_pb2.UNAVAILABLE, reason, retry_after_s=retry_after_s)


def timed_out(message: str) -> Problem:
    return Problem(408, code_pb2.DEADLINE_EXCEEDED, message)


def problem_of(error: Exception) -> Problem | None:
    """The answer that an error of the collector means; None for one that is no refusal."""
    match error:
        case Problem():
            return error
        case Overloaded():
            return overloaded(error.reason, error.retry_after_s)
        case Unauthenticated():
            return Problem(401, code_pb2.UNAUTHENTICATED, str(error), {"WWW-Authenticate": "Bearer"})
        case Forbidden():
            return Problem(403, code_pb2.PERMISSION_DENIED, str(error))
        case QuotaExceeded():
            return Problem(429, code_pb2.RESOURCE_EXHAUSTED, str(error), retry_after_s=error.retry_after_s)
        case TooLarge():
            return Problem(413, code_pb2.RESOURCE_EXHAUSTED, str(error))
        case UnknownCoding():
            return unsupported(str(error))
        case UnknownSkill():
            return Problem(404, code_pb2.NOT_FOUND, str(error.args[0]))
        case RequestValidationError():
            return invalid(_expected(error))
        case CorruptBody() | BodyError() | OtlpError() | StrictRefusal() | BadProject():
            return invalid(str(error))
        case _:
            return None


def outcome_of(error: Exception) -> str:
    """How a request that ended so is counted: `overloaded` where the sender is to come again, else `refused`."""
    problem = problem_of(error)
    return "overloaded" if problem is not None and problem.code == code_pb2.UNAVAILABLE else "refused"


def render(problem: Problem, media: str) -> Response:
    """The refusal as protobuf where the request was that, else as JSON."""
    headers = dict(problem.headers or {})
    status = status_pb2.Status(code=problem.code, message=problem.message)
    if problem.status_code == 400:
        reason = error_details_pb2.BadRequest.FieldViolation(description=problem.message)
        status.details.add().Pack(error_details_pb2.BadRequest(field_violations=[reason]))
    if media == PROTOBUF:
        return Response(status.SerializeToString(), problem.status_code, headers, PROTOBUF)
    return Response(json_format.MessageToJson(status, indent=None), problem.status_code, headers, JSON)


async def render_unrouted(request: Request, error: Exception) -> Response:
    """What no route answers (404, 405), as protobuf where the request was that, else as FastAPI answers it."""
    assert isinstance(error, StarletteException)
    if error.status_code == 404 and error.detail == HTTPStatus.NOT_FOUND.phrase:
        error.detail = f"nothing is at {request.url.path:.200}; /docs lists what there is"
    media = media_type(request.headers.get("content-type", ""))
    if media != PROTOBUF:
        return await http_exception_handler(request, error)
    return render(Problem(error.status_code, code_pb2.UNIMPLEMENTED, error.detail, dict(error.headers or {})), media)


async def render_invalid(_request: Request, error: Exception) -> Response:
    """A parameter of the wrong form, where the route is no StatusRoute: a sentence, as for all others."""
    assert isinstance(error, RequestValidationError)
    return JSONResponse({"detail": _expected(error)}, 400)


def _expected(error: RequestValidationError) -> str:
    """The first parameter that is wrong, what was expected and what came."""
    wrong = error.errors()[0]
    expected = wrong["msg"].removeprefix("Input should be ").removesuffix(", unable to interpret input")
    return f"{wrong['loc'][-1]}: expected {expected}, got {wrong.get('input')!r:.80}"


class StatusRoute(APIRoute):
    """A route whose refusals are answered as ``google.rpc.Status``."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return partial(answered, super().get_route_handler())


async def answered(handle: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
    """The answer of a handler; a refusal that it raises as ``google.rpc.Status``."""
    try:
        return await handle(request)
    except Exception as error:
        problem = problem_of(error)
        if problem is None:
            raise
        return render(problem, media_type(request.headers.get("content-type", "")))
