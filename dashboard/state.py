"""What every page is about: the project and the window, chosen in the sidebar and kept in the address."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import streamlit as st

from analytics.segments_damage import mend_segments
from dashboard import data, formats
from pickwise.events import DEFAULT_PROJECT
from pickwise.settings import load_settings

PROJECT_KEY = "project"
WINDOW_KEY = "window"
REFRESH_KEY = "refresh"
#: Seconds between two looks when the page keeps itself up to date.
REFRESH_S = 5

#: The choice that follows the data: all that is kept if it is young, else the last week.
DEFAULT_WINDOW = "Automatic"
_YOUNG = timedelta(days=7)
_DAY = timedelta(days=1)
#: None: all that is kept.
WINDOWS: dict[str, timedelta | None] = {
    DEFAULT_WINDOW: None,
    "Last hour": timedelta(hours=1),
    "Last 24 hours": timedelta(days=1),
    "Last 7 days": timedelta(days=7),
    "Last 30 days": timedelta(days=30),
    "All": None,
}


@dataclass(frozen=True)
class Scope:
    """Project and window of a page. ``start`` None: from the beginning; the window's end is always now."""

    source: data.Source
    project: str
    window: str
    start: datetime | None
    #: First and last event that is kept of the project; None: nothing.
    first: datetime | None
    last: datetime | None

    @property
    def has_data(self) -> bool:
        return self.last is not None

    @property
    def has_events_in_window(self) -> bool:
        return self.last is not None and (self.start is None or self.last >= self.start)

    @property
    def shown(self) -> tuple[datetime | None, datetime | None]:
        """From when to when there are events in the window."""
        if self.first is None or self.start is None:
            return self.first, self.last
        return max(self.first, self.start), self.last

    @property
    def described(self) -> str:
        return f"{self.project} · {formats.span(*self.shown)}"


def data_dir() -> Path:
    return load_settings().data_dir.resolve()


def sidebar() -> None:
    """The pickers. Their values stand in the address, so that a link shows what its sender saw."""
    with _told():
        projects = data.projects(data.source(data_dir())) or [DEFAULT_PROJECT]
    with st.sidebar:
        st.selectbox("Project", projects, key=PROJECT_KEY, bind="query-params", index=_default_project(projects))
        st.selectbox("Window", list(WINDOWS), key=WINDOW_KEY, bind="query-params")
        st.toggle(
            "Refresh by itself", key=REFRESH_KEY, bind="query-params", help=f"Looks for new events every {REFRESH_S} s"
        )


def current() -> Scope:
    """The scope that the sidebar says, as of now."""
    source = data.source(data_dir())
    project = st.session_state.get(PROJECT_KEY) or DEFAULT_PROJECT
    window = st.session_state.get(WINDOW_KEY) or DEFAULT_WINDOW
    found = data.kept(source, project)
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    start = window_start(window, found["first"], found["last"], now)
    return Scope(source, project, window, start, found["first"], found["last"])


def window_start(window: str, first: datetime | None, last: datetime | None, now: datetime) -> datetime | None:
    """Start of the window; None: all that is kept. ``now`` in whole minutes, so that answers can be kept a while.

    Windows of days begin with a whole hour, as rollups have them.
    """
    if window != DEFAULT_WINDOW:
        length = WINDOWS[window]
        return None if length is None else _hour_of(now - length) if length >= _DAY else now - length
    if first is None or last is None or now - first < _YOUNG:
        return None
    # Imported history may end long ago: all of it says more than an empty week.
    return _hour_of(now - _YOUNG) if last >= now - _YOUNG else None


def _hour_of(time: datetime) -> datetime:
    return time.replace(minute=0, second=0, microsecond=0)


def render(page: Callable[[Scope], Any]) -> None:
    """Show a page, again and again where that is wanted."""

    def shown() -> None:
        with _told():
            page(current())

    st.fragment(shown, run_every=REFRESH_S if st.session_state.get(REFRESH_KEY) else None)()


@contextmanager
def _told() -> Iterator[None]:
    """A data folder that can't be read is said in a sentence; where only segments are damaged they are made again."""
    try:
        yield
    except OSError as error:
        st.error(str(error))
        st.stop()
    except duckdb.Error:
        if not mend_segments(data_dir()):
            raise
        st.rerun()


def _default_project(projects: list[str]) -> int:
    return projects.index(DEFAULT_PROJECT) if DEFAULT_PROJECT in projects else 0


def shown_list(lists: Sequence[str], key: str) -> str:
    """Which of a page's lists is shown, at first the first one; the choice is kept in the address under ``key``."""
    chosen = st.segmented_control(
        "Show",
        lists,
        default=lists[0],
        required=True,
        key=key,
        bind="query-params",
        label_visibility="collapsed",
    )
    return chosen or lists[0]
