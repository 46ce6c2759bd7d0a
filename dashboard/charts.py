"""Figures, all from one template: transparent, thin grid, one accent, red only for what failed.

Fonts and grid colours follow the page's theme; only traces are coloured here. Plotly reads markup in its labels, so
names from outside are escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Any

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from dashboard import formats


@dataclass(frozen=True)
class Palette:
    accent: str
    band: str
    quiet: str
    bad: str
    warn: str


_LIGHT = Palette("#0f766e", "rgba(15, 118, 110, 0.13)", "#94a3a5", "#c2362f", "#c98a1b")
_DARK = Palette("#2dd4bf", "rgba(45, 212, 191, 0.16)", "#6b7b7d", "#f87171", "#fbbf24")
_LABEL_SIZE = 12
_ROW_PX = 26
_SHADE_STEP = 0.22
_LEAST_WIDTH = 0.004
_LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"}
_MARGIN_PX = 46
#: Lines of at most so many points show them.
_MARKED = 14
_DAY_MS = 86_400_000
_TIME_TICKS = (
    {"dtickrange": [None, _DAY_MS // 4 - 1], "value": "%H:%M"},
    {"dtickrange": [_DAY_MS // 4, _DAY_MS - 1], "value": "%-d %b %H:%M"},
    {"dtickrange": [_DAY_MS, None], "value": "%-d %b"},
)


def palette() -> Palette:
    return _DARK if st.context.theme.type == "dark" else _LIGHT


def show(figure: go.Figure, key: str, described: str) -> None:
    """Draw a figure at its own height; ``described`` is what a screen reader says."""
    st.plotly_chart(figure, key=key, config={"displayModeBar": False, "responsive": True}, alt=described)


def metric_line(points: pl.DataFrame, unit: str, height: int = 150) -> go.Figure:
    """A metric over time with its 95 % interval. ``points``: time, value, n, low, high."""
    colours, figure = palette(), _figure(height)
    known = points.drop_nulls("value")
    if known.get_column("low").null_count() < known.height:
        figure.add_scatter(x=known["time"], y=known["high"], mode="lines", line_width=0, hoverinfo="skip")
        figure.add_scatter(
            x=known["time"],
            y=known["low"],
            mode="lines",
            line_width=0,
            fill="tonexty",
            fillcolor=colours.band,
            hoverinfo="skip",
        )
    figure.add_scatter(
        x=known["time"],
        y=known["value"],
        mode="lines+markers" if known.height <= _MARKED else "lines",
        line={"color": colours.accent, "width": 1.8},
        marker={"size": 5, "color": colours.accent},
        customdata=[
            (formats.with_unit(row["value"], unit, row["n"]), formats.count(row["n"])) for row in known.to_dicts()
        ],
        hovertemplate="%{x|%-d %b %H:%M}<br><b>%{customdata[0]}</b> (n = %{customdata[1]})<extra></extra>",
    )
    figure.update_yaxes(rangemode="tozero", nticks=4, tickformat=".0%" if unit == "fraction" else "~s")
    figure.update_xaxes(nticks=3, tickangle=0, tickformatstops=_TIME_TICKS, tickfont_size=11, showgrid=False)
    return figure


def outcomes(days: Sequence[str], succeeded: Sequence[int], failed: Sequence[int]) -> go.Figure:
    """Finished calls a day, those that failed on top."""
    colours, figure = palette(), _figure(220)
    figure.add_bar(x=days, y=succeeded, name="succeeded", marker_color=colours.accent)
    figure.add_bar(x=days, y=failed, name="failed", marker_color=colours.bad)
    return _grouped(figure, "stack", len(days))


def exposure(days: Sequence[str], impressions: Sequence[int], picks: Sequence[int], skips: Sequence[int]) -> go.Figure:
    """How often a skill was offered, picked and skipped a day."""
    colours, figure = palette(), _figure(220)
    figure.add_bar(x=days, y=impressions, name="offered", marker_color=colours.quiet)
    figure.add_bar(x=days, y=picks, name="picked", marker_color=colours.accent)
    figure.add_bar(x=days, y=skips, name="skipped", marker_color=colours.warn)
    return _grouped(figure, "group", len(days))


def durations(named: Mapping[str, float], wrong: frozenset[str] = frozenset()) -> go.Figure:
    """Milliseconds by name as horizontal bars, in the order given."""
    return _bars(named, [formats.milliseconds(value) for value in named.values()], wrong)


def amounts(named: Mapping[str, float], shown: Sequence[str], wrong: frozenset[str] = frozenset()) -> go.Figure:
    """Any amounts by name as horizontal bars, each with the text that is shown for it."""
    return _bars(named, shown, wrong)


@dataclass(frozen=True)
class Span:
    """A stretch of a timeline, in milliseconds from its beginning."""

    row: str
    label: str
    start_ms: float
    length_ms: float
    failed: bool


def timeline(spans: Sequence[Span]) -> go.Figure:
    """Phases of calls side by side, one row a call, the first on top; what failed is red, whatever its phase."""
    colours = palette()
    rows = dict.fromkeys(span.row for span in spans)
    labels = dict.fromkeys(span.label for span in spans if not span.failed)
    figure = _figure(_MARGIN_PX + 40 + _ROW_PX * len(rows))
    end = max((span.start_ms + span.length_ms for span in spans), default=0.0)
    for index, label in enumerate(labels):
        chosen = [span for span in spans if span.label == label and not span.failed]
        _add_spans(figure, label, chosen, end, _shade(colours.accent, index))
    _add_spans(figure, "failed", [span for span in spans if span.failed], end, colours.bad)
    figure.update_layout(barmode="overlay", bargap=0.35, showlegend=True, legend=_LEGEND)
    figure.update_yaxes(
        autorange="reversed",
        showgrid=False,
        ticksuffix="  ",
        categoryorder="array",
        categoryarray=[escape(row) for row in rows],
    )
    figure.update_xaxes(ticksuffix=" ms", nticks=6, rangemode="tozero")
    return figure


def _shade(colour: str, index: int) -> str:
    """The colour, paler by the index; a legend shows a colour's own transparency, not that of a trace."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {max(1.0 - _SHADE_STEP * index, _SHADE_STEP):.2f})"


def _add_spans(figure: go.Figure, name: str, spans: Sequence[Span], end: float, colour: str) -> None:
    if not spans:
        return
    figure.add_bar(
        name=name,
        y=[escape(span.row) for span in spans],
        # The shortest phases keep a width that can be seen.
        x=[max(span.length_ms, end * _LEAST_WIDTH) for span in spans],
        base=[span.start_ms for span in spans],
        orientation="h",
        marker={"color": colour, "line_width": 0},
        customdata=[
            (span.label, formats.milliseconds(span.length_ms), formats.milliseconds(span.start_ms)) for span in spans
        ],
        hovertemplate="%{customdata[0]}: <b>%{customdata[1]}</b><br>from %{customdata[2]} on<extra></extra>",
    )


def curves(by_name: Mapping[str, Sequence[float]], height: int = 240) -> go.Figure:
    """Examination by rank, one line a calling model."""
    colours, figure = palette(), _figure(height)
    dashes = ("solid", "dash", "dot", "dashdot")
    for index, (name, values) in enumerate(by_name.items()):
        figure.add_scatter(
            x=list(range(1, len(values) + 1)),
            y=list(values),
            name=escape(name),
            mode="lines+markers",
            line={"color": colours.accent if index % 2 == 0 else colours.quiet, "dash": dashes[index % len(dashes)]},
            hovertemplate="%{fullData.name}, rank %{x}: <b>%{y:.2f}</b><extra></extra>",
        )
    figure.update_layout(showlegend=True, legend=_LEGEND)
    figure.update_xaxes(title="rank", dtick=1, showgrid=False)
    figure.update_yaxes(rangemode="tozero", nticks=4)
    figure.update_layout(margin_b=40)
    return figure


def interval(low: float, value: float, high: float) -> go.Figure:
    """One estimate with its interval against zero."""
    colours, figure = palette(), _figure(92)
    colour = colours.accent if low > 0 else colours.quiet
    figure.add_vline(x=0, line={"color": colours.quiet, "width": 1, "dash": "dot"})
    figure.add_scatter(
        x=[value],
        y=[""],
        mode="markers",
        marker={"size": 11, "color": colour},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [high - value],
            "arrayminus": [value - low],
            "color": colour,
            "thickness": 2,
            "width": 7,
        },
        hovertemplate=f"{value:+.4f} [{low:+.4f}, {high:+.4f}]<extra></extra>",
    )
    figure.update_yaxes(visible=False)
    figure.update_xaxes(nticks=6, tickformat="+.3~f", zeroline=False)
    return figure


def _bars(named: Mapping[str, float], shown: Sequence[str], wrong: frozenset[str]) -> go.Figure:
    colours = palette()
    figure = _figure(_MARGIN_PX - 16 + _ROW_PX * len(named))
    figure.add_bar(
        y=[escape(name) for name in named],
        x=list(named.values()),
        orientation="h",
        marker_color=[colours.bad if name in wrong else colours.accent for name in named],
        text=list(shown),
        textposition="outside",
        cliponaxis=False,
        hovertemplate="%{y}: <b>%{text}</b><extra></extra>",
    )
    figure.update_layout(bargap=0.4)
    figure.update_yaxes(autorange="reversed", showgrid=False, automargin=True, ticksuffix="  ")
    # Room for the text beyond the longest bar.
    figure.update_xaxes(visible=False, range=[0, 1.25 * max([*named.values(), 0.0]) or 1.0])
    return figure


def _grouped(figure: go.Figure, mode: str, columns: int) -> go.Figure:
    # A lone column would fill the whole width.
    figure.update_layout(
        barmode=mode,
        bargap=0.3 if columns > 4 else 0.7,
        showlegend=True,
        legend=_LEGEND,
    )
    figure.update_yaxes(rangemode="tozero", nticks=5, tickformat=",d")
    figure.update_xaxes(type="category", showgrid=False)
    return figure


def _figure(height: int) -> go.Figure:
    layout: dict[str, Any] = {
        "height": height,
        "margin": {"l": 4, "r": 8, "t": 8, "b": 24},
        "showlegend": False,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"size": _LABEL_SIZE},
        "hoverlabel": {"align": "left"},
        "hovermode": "closest",
        "dragmode": False,
    }
    figure = go.Figure(layout=layout)
    figure.update_xaxes(fixedrange=True, tickfont_size=_LABEL_SIZE)
    figure.update_yaxes(fixedrange=True, tickfont_size=_LABEL_SIZE, automargin=True, zeroline=False)
    return figure


def day_label(day: str) -> str:
    """``2026-11-28`` → ``28 Nov``."""
    return f"{datetime.fromisoformat(day):%-d %b}"
