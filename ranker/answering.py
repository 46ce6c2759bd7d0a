"""The ranker's answers to HTTP requests, where weights, models and histories are in this process."""

from __future__ import annotations

import gzip
import re
import time
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any

import msgspec
from anyio import CapacityLimiter, to_thread
from fastapi import Request, Response

from collector.access import PROJECT_HEADER
from collector.body import CorruptBody, TooLarge, UnknownCoding, inflate
from collector.reception import read_body
from pickwise.events import plain_reason
from pickwise.settings import Settings
from ranker.artefacts import MEDIA_TYPE, ArtefactError, Artefacts
from ranker.log import Log
from ranker.rank import Ranker, RankError, RankRequest
from ranker.recall import RecallError, RecallRequest
from ranker.weights_store import WeightsError, WeightsStore

#: A client may use what it has for so long before it asks again; a version's own address never changes.
CURRENT_CACHE = "max-age=10, must-revalidate"
VERSION_CACHE = "max-age=31536000, immutable"
#: 200 candidates of 512 characters and a query of 8 KiB fit many times.
MAX_BODY_BYTES = 1024 * 1024
#: Requests that wait for an embedding or for loading at once: more gain nothing and take memory.
_WAITING = 4
#: So long it is taken for granted that the pointer did not move, seconds; a look takes a millisecond.
_POINTER_S = 0.2
#: Projects whose pointer is remembered, and documents that are kept as they are sent.
_POINTERS, _DOCUMENTS = 1_000, 8
#: Shorter documents gain nothing.
_GZIP_FROM_BYTES = 1_000
_TAKES_GZIP = re.compile(r"(^|[,\s])(gzip|\*)\s*(?!\s*;\s*q=0(\.0*)?\s*(,|$))", re.IGNORECASE)


class WeightsAnswers:
    """Answers with weights documents of a data folder: needs no model and little memory."""

    def __init__(self, settings: Settings) -> None:
        self._store = WeightsStore(settings.data_dir)
        self._current: dict[str, tuple[float, str]] = {}
        self._sent = lru_cache(_DOCUMENTS)(self._encoded)

    async def weights(self, request: Request, project: str) -> Response:
        version = request.query_params.get("version") or None
        current = version or await self._current_version(project)
        headers = _headers(current, is_current=version is None)
        if version is None and _matches(request, current):
            return Response(status_code=304, headers=headers)
        try:
            whole, small = await to_thread.run_sync(self._sent, project, current)
        except WeightsError as error:
            return refusal(404, str(error))
        if _matches(request, current):
            return Response(status_code=304, headers=headers)
        return _coded(request, whole, small, headers, "application/json")

    async def _current_version(self, project: str) -> str:
        """What the pointer names, or named a moment ago."""
        looked, version = self._current.get(project, (0.0, ""))
        if time.monotonic() > looked + _POINTER_S:
            version = await to_thread.run_sync(self._pointed_at, project)
            if len(self._current) >= _POINTERS:
                self._current.clear()
            self._current[project] = time.monotonic(), version
        return version

    def _pointed_at(self, project: str) -> str:
        return self._store.served_version(project)

    def _encoded(self, project: str, version: str) -> tuple[bytes, bytes]:
        whole = msgspec.json.encode(self._store.document(project, version))
        return whole, gzip.compress(whole, mtime=0) if len(whole) >= _GZIP_FROM_BYTES else b""


class RankerAnswers(WeightsAnswers):
    """Answers everything from what it has loaded. What waits for nothing is answered at once, the rest in threads."""

    def __init__(self, settings: Settings, read: Callable[[str], Log] | None = None) -> None:
        """``read`` as for ``Projects``."""
        super().__init__(settings)
        self.ranker = Ranker(settings.data_dir, settings, read=read)
        self._artefacts = Artefacts(settings.data_dir)
        self._waiting = CapacityLimiter(_WAITING)

    async def rank(self, request: Request, project: str) -> Response:
        return await self._read(request, project, self.rank_body)

    async def recall(self, request: Request, project: str) -> Response:
        return await self._read(request, project, self.recall_body)

    async def rank_body(self, body: bytes, coding: str, project: str) -> Response:
        """The answer to a body that has come as a whole; ``coding`` is its Content-Encoding."""
        return await self._asked(body, coding, project, RankRequest, self.ranker.is_quick, self.ranker.ranked)

    async def recall_body(self, body: bytes, coding: str, project: str) -> Response:
        """The same of recall."""
        return await self._asked(body, coding, project, RecallRequest, self.ranker.recalls_quickly, self.ranker.recall)

    async def artefact(self, request: Request, project: str) -> Response:
        version = request.query_params.get("version")
        current = version or await to_thread.run_sync(self._artefact_version, project, limiter=self._waiting)
        if current is None:
            return refusal(404, f"no skill of project {project:.80} has a history yet")
        headers = _headers(current, is_current=version is None)
        if version is None and _matches(request, current):
            return Response(status_code=304, headers=headers)
        gzipped = _takes_gzip(request)
        try:
            content = await to_thread.run_sync(lambda: self._artefacts.read(project, current, gzipped=gzipped))
        except ArtefactError as error:
            return refusal(404, str(error))
        if _matches(request, current):
            return Response(status_code=304, headers=headers)
        coding = {"Content-Encoding": "gzip"} if gzipped else {}
        return Response(content, media_type=MEDIA_TYPE, headers=headers | coding)

    def _pointed_at(self, project: str) -> str:
        version = super()._pointed_at(project)
        self.ranker.projects.renew(project, version)
        return version

    def _artefact_version(self, project: str) -> str | None:
        """The newest one; after a restart that of before, until recall is loaded again."""
        served = self.ranker.projects.loaded(project)
        kept = self._artefacts.current(project) if served is None or served.recall is None else None
        return kept or self.ranker.projects.with_recall(project).artefact

    async def _read(
        self, request: Request, project: str, answer: Callable[[bytes, str, str], Awaitable[Response]]
    ) -> Response:
        try:
            body = await read_body(request, MAX_BODY_BYTES)
        except TooLarge as error:
            return refusal(413, f"body: {error}")
        return await answer(body, request.headers.get("content-encoding", ""), project)

    async def _asked(
        self,
        body: bytes,
        coding: str,
        project: str,
        form: type[msgspec.Struct],
        is_quick: Callable[[str, Any], bool],
        answer: Callable[[str, Any], Any],
    ) -> Response:
        try:
            body = inflate(body, coding)
            if len(body) > MAX_BODY_BYTES:
                raise TooLarge(f"expected at most {MAX_BODY_BYTES} bytes after decompression")
        except TooLarge as error:
            return refusal(413, f"body: {error}")
        except UnknownCoding as error:
            return refusal(415, str(error))
        except CorruptBody as error:
            return refusal(400, f"body: {error}")
        try:
            asked: Any = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return _undecoded(body, form, error)
        if is_quick(project, asked):
            return _answered(answer, project, asked)
        return await to_thread.run_sync(_answered, answer, project, asked, limiter=self._waiting)


def refusal(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode({"detail": detail}), status, headers, "application/json")


def _undecoded(body: bytes, form: type[msgspec.Struct], error: Exception) -> Response:
    """The refusal of a body that is no JSON, or that has a number too large for any: the field of that is named."""
    if isinstance(error, msgspec.ValidationError):
        try:
            msgspec.json.decode(body, type=form)
        except msgspec.ValidationError as named:
            return refusal(422, plain_reason(str(named)))
        except msgspec.DecodeError:
            pass
    return refusal(400, f"body: expected JSON, {error}")


def _answered(answer: Callable[[str, Any], Any], project: str, asked: Any) -> Response:
    try:
        found = answer(project, asked)
    except (RankError, RecallError) as error:
        return refusal(422, str(error))
    return Response(msgspec.json.encode(found), media_type="application/json")


def _headers(version: str, *, is_current: bool) -> dict[str, str]:
    return {
        "ETag": f'"{version}"',
        "Cache-Control": CURRENT_CACHE if is_current else VERSION_CACHE,
        # The first two decide whose weights these are.
        "Vary": f"Authorization, {PROJECT_HEADER}, Accept-Encoding",
    }


def _coded(request: Request, whole: bytes, small: bytes, headers: dict[str, str], media_type: str) -> Response:
    if small and _takes_gzip(request):
        return Response(small, media_type=media_type, headers=headers | {"Content-Encoding": "gzip"})
    return Response(whole, media_type=media_type, headers=headers)


def _takes_gzip(request: Request) -> bool:
    return _TAKES_GZIP.search(request.headers.get("accept-encoding", "")) is not None


def _matches(request: Request, version: str) -> bool:
    """Weak comparison against a list of entity tags, as RFC 9110 13.1.2 says."""
    told = request.headers.get("if-none-match")
    if told is None:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in told.split(",")]
    return "*" in tags or f'"{version}"' in tags
