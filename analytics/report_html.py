"""The report as one HTML page to mail or to keep: styles inline, no script, nothing that is loaded from elsewhere.

It is built as a tree, so that whatever a name holds is text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal
from xml.etree.ElementTree import Element, SubElement, tostring

import duckdb
import polars as pl

from analytics.frames import metric_series
from analytics.metrics.declarations import BY_NAME
from analytics.plain import plain
from analytics.report import sentence
from analytics.report_lists import is_latency, lists
from analytics.report_text import (
    COLUMNS,
    cells,
    group_cells,
    heading,
    nothing_to_look_at,
    title,
)

#: Browsers then load nothing, whatever the page said.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
#: Up to here a trend is drawn by hour, beyond by day.
_BY_HOUR_UP_TO = timedelta(days=3)
#: Size of a trend and the room around its line, pixels.
_WIDTH, _HEIGHT, _ROOM = 120, 24, 3
_COLOURS = {"bad": "#b42318", "warn": "#b54708"}
_INK, _QUIET, _RULE = "#1d2939", "#667085", "#e4e7ec"

_BODY = (
    f"margin:0;padding:24px;background:#fff;color:{_INK};font:14px/1.45 system-ui,Segoe UI,Helvetica,Arial,sans-serif"
)
_TABLE = "border-collapse:collapse;width:100%;margin:4px 0 12px"
_CELL = f"padding:3px 10px 3px 0;border-bottom:1px solid {_RULE};vertical-align:top"
_NUMBER = f"{_CELL};text-align:right;white-space:nowrap"

#: Metric name to its values over time.
Trends = Mapping[str, Sequence[float]]


def trends(connection: duckdb.DuckDBPyConnection, found: dict[str, Any]) -> Trends:
    """The values of each metric of a report over its window, by hour or by day, oldest first."""
    start, end = (datetime.fromisoformat(found[name]) if found[name] else None for name in ("from", "to"))
    is_short = start is not None and end is not None and end - start <= _BY_HOUR_UP_TO
    every: Literal["hour", "day"] = "hour" if is_short else "day"
    lines = {}
    for m in (m for decision in found["decisions"] for m in decision["metrics"]):
        declared = BY_NAME[m["metric"]]
        # Overlaps of different version pairs are no one line; no more are the waits of different stages.
        if not m["n"] or is_latency(m) or declared.always_by or every not in declared.groupings:
            continue
        series = metric_series(connection, declared.name, project=found["project"], start=start, end=end, every=every)
        if declared.headline_k is not None:
            series = series.filter(pl.col("k") == declared.headline_k)
        lines[declared.name] = series["value"].drop_nulls().to_list()
    return lines


def render_html(found: dict[str, Any], lines: Trends) -> str:
    """The report as a whole HTML document; ``lines`` are drawn beside their metrics."""
    page = Element("html", lang="en")
    head = SubElement(page, "head")
    SubElement(head, "meta", charset="utf-8")
    SubElement(head, "meta", {"http-equiv": "Content-Security-Policy", "content": _POLICY})
    SubElement(head, "meta", name="viewport", content="width=device-width")
    _text(head, "title", f"Pickwise: {title(found)}")
    body = SubElement(page, "body", style=_BODY)
    main = SubElement(body, "div", style="max-width:880px;margin:0 auto")
    _text(main, "h1", title(found), "font-size:18px;margin:0 0 12px")
    _look_first(main, found)
    for decision in found["decisions"]:
        _text(main, "h2", heading(decision), "font-size:15px;margin:20px 0 0")
        _text(main, "p", decision["question"], f"margin:0 0 4px;color:{_QUIET}")
        _metrics(main, decision["metrics"], found["by"], lines)
        for told in lists(found, decision):
            _text(main, "p", told.title, "margin:8px 0 0;font-weight:600")
            table = _table(main, told.columns)
            for row in told.rows:
                _row(table, row)
    return "<!doctype html>\n" + tostring(page, encoding="unicode", method="html") + "\n"


def _look_first(parent: Element, found: dict[str, Any]) -> None:
    if not found["look_first"]:
        _text(parent, "p", nothing_to_look_at(found), "margin:0")
        return
    _text(parent, "h2", "Look first", "font-size:15px;margin:0 0 4px")
    findings = SubElement(parent, "ul", style="margin:0;padding-left:20px")
    for finding in found["look_first"]:
        _text(findings, "li", sentence(finding, plain), f"color:{_COLOURS[finding['severity']]}")


def _metrics(parent: Element, metrics: list[dict[str, Any]], by: Sequence[str], lines: Trends) -> None:
    table = _table(parent, (*COLUMNS, "over time"))
    for m in metrics:
        if not is_latency(m):
            row = _row(table, cells(m), _COLOURS.get(m["status"] or "", _INK))
            _trend(SubElement(row, "td", style=_NUMBER), m["metric"], lines.get(m["metric"], ()))
        for named in group_cells(m, by):
            _row(table, [*named, ""], _QUIET, indent=16)


def _trend(parent: Element, name: str, values: Sequence[float]) -> None:
    """A small line from the first to the last value, each as high as it is between the least and the greatest."""
    if len(values) < 2:
        return
    low, high = min(values), max(values)
    wide, tall = (_WIDTH - 2 * _ROOM) / (len(values) - 1), _HEIGHT - 2 * _ROOM
    points = [
        (_ROOM + i * wide, _HEIGHT - _ROOM - (tall * (value - low) / (high - low) if high > low else tall / 2))
        for i, value in enumerate(values)
    ]
    size = {"width": str(_WIDTH), "height": str(_HEIGHT), "viewBox": f"0 0 {_WIDTH} {_HEIGHT}"}
    picture = SubElement(parent, "svg", size, role="img", style="display:block;margin-left:auto")
    picture.set("aria-label", f"{name} over time, {len(values)} values between {low:.4g} and {high:.4g}")
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    SubElement(picture, "polyline", {"points": line, "fill": "none", "stroke": _QUIET, "stroke-width": "1.5"})
    x, y = points[-1]
    SubElement(picture, "circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="2", fill=_INK)


def _table(parent: Element, columns: Sequence[str]) -> Element:
    table = SubElement(parent, "table", style=_TABLE)
    row = SubElement(SubElement(table, "thead"), "tr")
    for i, column in enumerate(columns):
        align = "right" if i else "left"
        _text(row, "th", column, f"{_CELL};text-align:{align};font-weight:400;color:{_QUIET}")
    return SubElement(table, "tbody")


def _row(table: Element, row: Sequence[str], colour: str = _INK, indent: int = 0) -> Element:
    name, *numbers = row
    line = SubElement(table, "tr", style=f"color:{colour}")
    _text(line, "td", name, f"{_CELL};padding-left:{indent}px;word-break:break-word")
    for number in numbers:
        _text(line, "td", number, _NUMBER)
    return line


def _text(parent: Element, tag: str, text: str, style: str = "") -> None:
    SubElement(parent, tag, {"style": style} if style else {}).text = plain(text)
