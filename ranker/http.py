"""The ranker's HTTP routes: ``GET /v1/weights`` and ``POST /v1/rank``."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Header, Query, Request, Response

from collector.access import PROJECT_HEADER
from collector.body import TooLarge
from collector.callers import Reader
from collector.reception import read_body
from pickwise.settings import Settings
from ranker.rank import Ranker, RankError
from ranker.weights_store import WeightsError, WeightsStore

#: A client may use what it has for so long before it asks again; a version's own address never changes.
CURRENT_CACHE = "max-age=10, must-revalidate"
VERSION_CACHE = "max-age=31536000, immutable"
#: 200 candidates of 512 characters and a query of 8 KiB fit many times.
MAX_RANK_BYTES = 1024 * 1024
#: Requests that are ranked at once: scoring holds the interpreter's lock, more gain nothing and take memory.
_RANKED_AT_ONCE = 4


def ranker_router(settings: Settings) -> APIRouter:
    """Routes over the settings' data folder. Weights and models are looked up as they change."""
    router = APIRouter(tags=["ranker"])
    store = WeightsStore(settings.data_dir)
    ranker = Ranker(settings.data_dir, settings)
    at_once = CapacityLimiter(_RANKED_AT_ONCE)

    @router.get(
        "/v1/weights",
        summary="The weights of a project: current, or one version",
        responses={304: {"description": "If-None-Match names what is current"}},
    )
    def weights(
        caller: Reader,
        version: Annotated[str | None, Query(description="one version instead of the current one")] = None,
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> Response:
        try:
            document = store.document(caller.project, version)
        except WeightsError as error:
            return _error(404, str(error))
        headers = {
            "ETag": f'"{document.version}"',
            "Cache-Control": VERSION_CACHE if version else CURRENT_CACHE,
            "Vary": f"Authorization, {PROJECT_HEADER}",  # both decide whose weights these are
        }
        if _matches(if_none_match, document.version):
            return Response(status_code=304, headers=headers)
        return Response(msgspec.json.encode(document), media_type="application/json", headers=headers)

    @router.post("/v1/rank", summary="Rank candidates by what was learned")
    async def rank(request: Request, caller: Reader) -> Response:
        try:
            body = await read_body(request, MAX_RANK_BYTES)
        except TooLarge as error:
            return _error(413, f"body: {error}")
        return await to_thread.run_sync(_ranked, ranker, caller.project, body, limiter=at_once)

    return router


def _ranked(ranker: Ranker, project: str, body: bytes) -> Response:
    try:
        asked: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _error(400, f"body: expected JSON, {error}")
    try:
        answer = ranker.rank(project, asked)
    except RankError as error:
        return _error(422, str(error))
    return Response(msgspec.json.encode(answer), media_type="application/json")


def _matches(if_none_match: str | None, version: str) -> bool:
    """Weak comparison against a list of entity tags, as RFC 9110 13.1.2 says."""
    if if_none_match is None:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return "*" in tags or f'"{version}"' in tags


def _error(status: int, detail: str) -> Response:
    return Response(msgspec.json.encode({"detail": detail}), status_code=status, media_type="application/json")
