"""The ranker's HTTP routes: ``GET /v1/weights`` and ``POST /v1/rank``."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from pickwise.events import DEFAULT_PROJECT
from pickwise.settings import Settings
from ranker.rank import Ranker, RankError
from ranker.weights_store import WeightsError, WeightsStore

#: A client may use what it has for so long before it asks again; a version's own address never changes.
CURRENT_CACHE = "max-age=10, must-revalidate"
VERSION_CACHE = "max-age=31536000, immutable"
#: 200 candidates of 512 characters and a query of 8 KiB fit many times.
MAX_RANK_BYTES = 1024 * 1024

ProjectQuery = Annotated[str | None, Query(alias="project", description="the project; else the header, else default")]
ProjectHeader = Annotated[str | None, Header(alias="X-Pickwise-Project")]


def ranker_router(settings: Settings) -> APIRouter:
    """Routes over the settings' data folder. Weights and models are looked up as they change."""
    router = APIRouter(tags=["ranker"])
    store = WeightsStore(settings.data_dir)
    ranker = Ranker(settings.data_dir, settings)

    @router.get("/v1/weights", summary="The weights of a project: current, or one version")
    def weights(
        project: ProjectQuery = None,
        header: ProjectHeader = None,
        version: Annotated[str | None, Query(description="one version instead of the current one")] = None,
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> Response:
        try:
            document = store.document(project or header or DEFAULT_PROJECT, version)
        except WeightsError as error:
            return _error(404, str(error))
        headers = {"ETag": f'"{document.version}"', "Cache-Control": VERSION_CACHE if version else CURRENT_CACHE}
        if _matches(if_none_match, document.version):
            return Response(status_code=304, headers=headers)
        return Response(msgspec.json.encode(document), media_type="application/json", headers=headers)

    @router.post("/v1/rank", summary="Rank candidates by what was learned")
    async def rank(request: Request, project: ProjectQuery = None, header: ProjectHeader = None) -> Response:
        body = await request.body()
        if len(body) > MAX_RANK_BYTES:
            return _error(413, f"body: expected at most {MAX_RANK_BYTES} bytes, got {len(body)}")
        try:
            asked: Any = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return _error(400, f"body: expected JSON, {error}")
        try:
            answer = await run_in_threadpool(ranker.rank, project or header or DEFAULT_PROJECT, asked)
        except RankError as error:
            return _error(422, str(error))
        return Response(msgspec.json.encode(answer), media_type="application/json")

    return router


def _matches(if_none_match: str | None, version: str) -> bool:
    """Weak comparison against a list of entity tags, as RFC 9110 13.1.2 says."""
    if if_none_match is None:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return "*" in tags or f'"{version}"' in tags


def _error(status: int, detail: str) -> Response:
    return Response(msgspec.json.encode({"detail": detail}), status_code=status, media_type="application/json")
