"""Answers to questions while files of the data folder can't be read: 503 and why, never a 500.

Files of segments are read when a question needs them. One that turns out to be damaged is set aside with the others,
so who comes again gets an answer from the tables.
"""

from __future__ import annotations

import logging

import duckdb
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from analytics.labels_imported import LabelsUnreadable
from analytics.segments_damage import mend_segments
from analytics.tables import TablesUnreadable
from collector.lake_version import LakeFormatError
from pickwise.settings import Settings

log = logging.getLogger(__name__)

_RETRY_AFTER_S = 10


def answer_unreadable(app: FastAPI, settings: Settings) -> None:
    """Let an application answer so."""

    async def broken(_request: Request, error: Exception) -> Response:
        return _refused(str(error))

    async def failed(_request: Request, error: Exception) -> Response:
        if not await run_in_threadpool(mend_segments, settings.data_dir):
            raise error
        return _refused("files below settled/ were damaged; they are made again from the tables")

    for kind in (TablesUnreadable, LabelsUnreadable, LakeFormatError):
        app.add_exception_handler(kind, broken)
    app.add_exception_handler(duckdb.Error, failed)


def _refused(why: str) -> Response:
    log.error("a question could not be answered: %s", why)
    return JSONResponse({"detail": why}, 503, {"Retry-After": str(_RETRY_AFTER_S)})
