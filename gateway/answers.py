"""What the tables say, over HTTP: metrics, report, one skill, one selection, alerts."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, HTTPException, Query, Response

from analytics import frames, portrait, replay
from analytics import report as reports
from analytics.metrics.declarations import BY_NAME
from analytics.query import MetricError, metric
from analytics.report_forms import Form, rendered
from analytics.tables import Tables
from collector.callers import Reader
from pickwise.events import EventError, as_datetime, parse_instant
from pickwise.settings import Settings


def _time(name: str, value: str | None) -> datetime | None:
    """A window bound: RFC 3339 or Unix nanoseconds."""
    if value is None:
        return None
    try:
        nanoseconds = parse_instant(value)
    except EventError as error:
        raise HTTPException(400, f"{name}: {str(error).removeprefix('time: ')}") from error
    return None if nanoseconds is None else as_datetime(nanoseconds)


def _window(start: str | None, end: str | None) -> tuple[datetime | None, datetime | None]:
    first, last = _time("from", start), _time("to", end)
    if first is not None and last is not None and last < first:
        raise HTTPException(400, f"to: expected a time after from ({start}), got {end}")
    return first, last


def _project(caller: Reader) -> str:
    return caller.project


Project = Annotated[str, Depends(_project)]
From = Annotated[str | None, Query(alias="from", description="first instant, RFC 3339 or Unix nanoseconds")]
To = Annotated[str | None, Query(alias="to", description="end, exclusive")]
By = Annotated[list[str], Query(description="grouping, repeated or comma-separated")]
Judge = Annotated[bool, Query(description="count feedback with source = judge too")]


_MEDIA_TYPES: dict[Form, str] = {"text": "text/plain", "markdown": "text/markdown", "html": "text/html"}


def answers_router(settings: Settings) -> APIRouter:
    """GET routes over the tables of one data folder. Handlers run in threads: queries block."""
    router = APIRouter(tags=["answers"])
    tables = Tables(settings.data_dir)

    @router.get("/v1/metrics/{name}")
    def read_metric(
        name: str,
        project: Project,
        start: From = None,
        to: To = None,
        by: By = [],  # noqa: B006
        judge: Judge = False,
    ) -> Any:
        if name not in BY_NAME:
            raise HTTPException(404, f"metric: expected one of {', '.join(BY_NAME)}; got {name!r}")
        window = _window(start, to)
        return _or_400(
            lambda: metric(
                tables.connect(), name, project=project, start=window[0], end=window[1], by=_split(by), judge=judge
            )
        )

    @router.get("/v1/report", responses={200: {"content": {kind: {} for kind in _MEDIA_TYPES.values()}}})
    def read_report(
        project: Project,
        start: From = None,
        to: To = None,
        by: By = [],  # noqa: B006
        form: Annotated[Literal["json", "text", "markdown", "html"], Query(alias="format")] = "json",
    ) -> Any:
        window = _window(start, to)
        connection = tables.connect()
        found = _or_400(lambda: reports.report(connection, project, window[0], window[1], _split(by)))
        return found if form == "json" else Response(rendered(connection, found, form), media_type=_MEDIA_TYPES[form])

    @router.get("/v1/skills/{skill_id:path}")
    def read_skill(skill_id: str, project: Project, start: From = None, to: To = None) -> Any:
        found = portrait.skill(tables.connect(), project, skill_id, *_window(start, to))
        return found or _missing("skill", skill_id, project)

    @router.get("/v1/selections/{event_id:path}")
    def read_selection(event_id: str, project: Project) -> Any:
        return replay.selection(tables.connect(), project, event_id) or _missing("selection", event_id, project)

    @router.get("/v1/alerts")
    def read_alerts(
        project: Project, limit: Annotated[int, Query(ge=1, le=10_000, description="the newest so many")] = 100
    ) -> Any:
        return {"alerts": frames.alerts(tables.connect(), project=project, limit=limit).to_dicts()}

    return router


def _split(by: list[str]) -> list[str]:
    return [part.strip() for item in by for part in item.split(",") if part.strip()]


def _or_400(answer: Any) -> Any:
    try:
        return answer()
    except MetricError as error:
        raise HTTPException(400, str(error)) from error


def _missing(kind: str, key: str, project: str) -> Any:
    raise HTTPException(404, f"no {kind} {key!r} in project {project!r}")
