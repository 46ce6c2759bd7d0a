"""The report as text for a terminal, and as Markdown; what all forms of it share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from analytics.metrics.declarations import MIN_N
from analytics.plain import plain
from analytics.report import FEW, sentence, show
from analytics.report_lists import interval, is_latency, lists

COLUMNS = ("metric", "value", "95 % interval", "n", "change", "")
_COLOURS = {"bad": "red", "warn": "yellow", "ok": "green"}
_BACKTICKS = re.compile("`+")


def render_text(found: dict[str, Any]) -> RenderableType:
    """The report for a terminal."""
    parts: list[RenderableType] = [Text(plain(title(found)), style="bold")]
    parts.append(Text("Look first:" if found["look_first"] else nothing_to_look_at(found)))
    parts += [Text(f"  {sentence(f, plain)}", style=_COLOURS[f["severity"]]) for f in found["look_first"]]
    for decision in found["decisions"]:
        table = Table(*COLUMNS, title=f"{heading(decision)}: {decision['question']}", title_justify="left")
        for m in decision["metrics"]:
            if not is_latency(m):
                table.add_row(*map(escape, cells(m)), style=_COLOURS.get(m["status"] or "", ""))
            for name, *numbers in group_cells(m, found["by"]):
                table.add_row(f"  {escape(name)}", *map(escape, numbers), style="dim")
        parts.append(table)
        for told in lists(found, decision):
            table = Table(*told.columns, title=told.title, title_justify="left")
            for row in told.rows:
                table.add_row(*map(escape, row))
            parts.append(table)
    return Group(*parts)


def render_markdown(found: dict[str, Any]) -> str:
    """The report as Markdown. Names stand in code spans, where nothing of them is a link, an image or a tag."""
    lines = [f"# {title(found, _code)}", ""]
    lines += ["## Look first", ""] if found["look_first"] else [nothing_to_look_at(found)]
    lines += [f"- **{f['severity']}** {sentence(f, _code)}" for f in found["look_first"]]
    for decision in found["decisions"]:
        lines += ["", f"## {heading(decision)}", "", decision["question"], "", *_head(COLUMNS)]
        for m in decision["metrics"]:
            if not is_latency(m):
                lines.append(_line(cells(m)))
            lines += [_line([_code(name), *numbers]) for name, *numbers in group_cells(m, found["by"])]
        for told in lists(found, decision):
            lines += ["", f"**{told.title}**", "", *_head(told.columns)]
            lines += [_line([_code(name), *numbers]) for name, *numbers in told.rows]
    return "\n".join(lines) + "\n"


def _head(columns: Sequence[str]) -> list[str]:
    return [_line(columns), "|" + "---|" * len(columns)]


def _line(row: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _code(text: str) -> str:
    """A code span; its fence is longer than any that the text has."""
    text = plain(text)
    fence = "`" * (1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    gap = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{gap}{text or ' '}{gap}{fence}"


def title(found: dict[str, Any], quoted: Any = str) -> str:
    """Which project and window."""
    project = f"Project {quoted(found['project'])}"
    if found["from"] is None and found["to"] is None:
        return f"{project}, all that is kept"
    return f"{project}, {found['from'] or 'the beginning'} to {found['to'] or 'now'}"


def heading(decision: dict[str, Any]) -> str:
    return str(decision["decision"]).capitalize()


def nothing_to_look_at(found: dict[str, Any]) -> str:
    """Why there is nothing to look at first."""
    measured = [m for decision in found["decisions"] for m in decision["metrics"] if not is_latency(m)]
    if not any(m["n"] for m in measured):
        return "No events in this project and window."
    few = [m["metric"] for m in measured if m["status"] == FEW]
    too_few = f" Too few observations to judge (n < {MIN_N}): {', '.join(few)}." if few else ""
    return f"Nothing is beyond its threshold.{too_few}"


def cells(m: dict[str, Any]) -> list[str]:
    """A metric under ``COLUMNS``."""
    return [m["metric"], show(m["value"], m["unit"]), interval(m), f"{m['n']:,}", _change(m), m["status"] or ""]


def group_cells(m: dict[str, Any], by: Sequence[str]) -> list[list[str]]:
    """The rows of the groupings asked for, under ``COLUMNS``, the name in front as data of unknown origin."""
    if is_latency(m):
        return []
    return [
        [
            plain(", ".join(_about(row, by))),
            show(row["value"], m["unit"]),
            interval(row | {"unit": m["unit"]}),
            f"{row['n']:,}",
            "",
            "",
        ]
        for row in m["rows"] or []
    ]


def _change(m: dict[str, Any]) -> str:
    if m["change"] is None:
        return ""
    return f"{m['change'] * 100:+.1f} pp" if m["unit"] == "fraction" else f"{m['change']:+,.1f}"


def _about(row: dict[str, Any], by: Sequence[str]) -> list[str]:
    """What a row is about: what its metric always tells apart, then the groups asked for."""
    said = [f"k = {row['k']}"] if row.get("k") is not None else []
    told = {"k"}
    if "rbo" in row:
        told |= {"embedding_version", "shadow_embedding_version"}
        said.append(f"{row['embedding_version']} → {row['shadow_embedding_version']} (rbo {row['rbo']:.3f})")
    said += [f"{row[group]}" for group in by if group in row and group not in told]
    return [*said, f"“{row['cluster_name']}”"] if row.get("cluster_name") else said
