"""What analytics and the ranker answer, kept until the lake changes: a ``Source`` is one state of the tables."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import streamlit as st

from analytics import frames, portrait, replay
from analytics import report as reports
from analytics.cluster_weakness import clusters_by_weakness
from analytics.confusion import confusions
from analytics.query import metric
from analytics.tables import Tables
from collector.lake import Lake
from dashboard.series import over_time
from pickwise.settings import load_settings
from ranker.weights_store import WeightsStore

#: Seconds for which the state of the lake is taken as unchanged.
_LOOK_AGAIN_S = 2.0
_KEPT = 200


@dataclass(frozen=True)
class Source:
    """The tables of a data folder at their commit numbers; part of every key, so that answers follow the lake."""

    data_dir: Path
    versions: tuple[tuple[str, int], ...]

    def connect(self) -> duckdb.DuckDBPyConnection:
        return Tables(self.data_dir).connect()


@st.cache_data(ttl=_LOOK_AGAIN_S, max_entries=_KEPT, show_spinner=False)
def source(data_dir: Path) -> Source:
    """The data folder as it is now."""
    return Source(data_dir, tuple(Lake(data_dir).versions().items()))


@st.cache_data(max_entries=_KEPT, show_spinner=False)
def projects(source: Source) -> list[str]:
    return Tables(source.data_dir).projects()


@st.cache_data(max_entries=_KEPT, show_spinner=False)
def kept(source: Source, project: str) -> dict[str, Any]:
    return frames.kept(source.connect(), project=project)


@st.cache_data(max_entries=_KEPT, show_spinner="Computing the metrics …")
def report(source: Source, project: str, start: datetime | None) -> dict[str, Any]:
    return reports.report(source.connect(), project, start, _end_of_window(start), with_lists=False)


def _end_of_window(start: datetime | None) -> datetime | None:
    """The end of this hour for windows of whole hours, which rollups have; None: now."""
    if start is None or start.minute:
        return None
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)


@st.cache_data(max_entries=_KEPT, show_spinner=False)
def grouped(source: Source, project: str, name: str, by: str, start: datetime | None) -> list[dict[str, Any]]:
    """One metric's rows by one grouping."""
    found: list[dict[str, Any]] = metric(source.connect(), name, project=project, start=start, by=[by])["rows"]
    return found


@st.cache_data(max_entries=_KEPT, show_spinner=False)
def series(
    source: Source,
    project: str,
    name: str,
    start: datetime | None,
    shown: tuple[datetime, datetime],
) -> pl.DataFrame:
    """One rate over time; ``shown`` are the first and last event in the window."""
    return over_time(source.connect(), name, project, start, *shown)


@st.cache_data(max_entries=_KEPT, show_spinner=False)
def skills(source: Source, project: str, start: datetime | None) -> pl.DataFrame:
    return frames.skills(source.connect(), project=project, start=start)


@st.cache_data(max_entries=_KEPT, show_spinner=False)
def skill(source: Source, project: str, skill_id: str, start: datetime | None) -> dict[str, Any] | None:
    return portrait.skill(source.connect(), project, skill_id, start)


@st.cache_data(max_entries=_KEPT, show_spinner=False)
def selection(source: Source, project: str, event_id: str) -> dict[str, Any] | None:
    return replay.selection(source.connect(), project, event_id)


@st.cache_data(max_entries=_KEPT, show_spinner=False)
def selections(
    source: Source,
    project: str,
    start: datetime | None,
    only: frames.Only | None = None,
    skill_id: str | None = None,
    limit: int = 50,
) -> pl.DataFrame:
    return frames.matching_selections(
        source.connect(), project=project, start=start, only=only, skill_id=skill_id, limit=limit
    )


@st.cache_data(max_entries=_KEPT, show_spinner="Counting what was picked instead …")
def confused(source: Source, project: str, start: datetime | None, limit: int) -> list[dict[str, Any]]:
    return confusions(source.connect(), project, start=start, limit=limit)


@st.cache_data(max_entries=_KEPT, show_spinner="Measuring each kind of question …")
def clusters(source: Source, project: str, start: datetime | None) -> list[dict[str, Any]]:
    return clusters_by_weakness(source.connect(), project, start)


@st.cache_data(max_entries=_KEPT, show_spinner=False)
def degraded_spells(source: Source, project: str, start: datetime | None) -> pl.DataFrame:
    return frames.degraded_spells(source.connect(), project=project, start=start)


@st.cache_data(max_entries=_KEPT, show_spinner=False)
def status_changes(source: Source, project: str, skill_id: str | None = None) -> pl.DataFrame:
    return frames.status_changes(source.connect(), project=project, skill_id=skill_id)


@st.cache_data(max_entries=_KEPT, show_spinner=False)
def alerts(source: Source, project: str) -> pl.DataFrame:
    return frames.alerts(source.connect(), project=project, limit=1000)


@st.cache_data(max_entries=_KEPT, show_spinner=False)
def training_runs(source: Source, project: str) -> pl.DataFrame:
    return frames.training_runs(source.connect(), project=project)


@st.cache_data(ttl=_LOOK_AGAIN_S, max_entries=_KEPT, show_spinner=False)
def weights_history(data_dir: Path, project: str) -> list[dict[str, Any]]:
    """Versions that were served, newest first. Rollbacks move a pointer only, so this follows the clock."""
    with closing(WeightsStore(data_dir)) as store:
        return store.history(project)


@st.cache_data(max_entries=_KEPT, show_spinner=False)
def weights(data_dir: Path, project: str, version: str) -> dict[str, Any]:
    """A version's document; immutable."""
    with closing(WeightsStore(data_dir)) as store:
        return store.get(project, version)


@st.cache_data(max_entries=_KEPT, show_spinner=False)
def explained(source: Source, project: str, version: str) -> list[dict[str, Any]]:
    """The weights of every skill of a version, each with its reasons."""
    # Here, as it loads LightGBM, which takes seconds that the other pages need not wait for.
    from ranker.explain import explain

    return explain(source.data_dir, load_settings(), project, weights(source.data_dir, project, version))
