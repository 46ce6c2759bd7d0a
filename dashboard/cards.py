"""Small pieces of HTML that the pages are made of. All text from outside is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Literal

import streamlit as st

Tone = Literal["good", "warn", "bad", "quiet", "accent", ""]
_STYLE = Path(__file__).with_name("style.css")


@dataclass(frozen=True)
class Html:
    """Markup that was built here, as against text from outside, which is escaped."""

    markup: str


Cell = Html | str


@dataclass(frozen=True)
class Column:
    title: str
    numeric: bool = False
    #: Long text that gets room and may wrap.
    text: bool = False


def style() -> None:
    """The style sheet, once a page."""
    st.html(_STYLE)


def show(*parts: Html) -> None:
    st.html("".join(part.markup for part in parts))


def text(value: str, tone: Tone = "") -> Html:
    return Html(f'<span class="pw-{tone}">{escape(value)}</span>') if tone else Html(escape(value))


def note(value: str) -> Html:
    return Html(f'<span class="pw-note">{escape(value)}</span>')


def strong(value: str) -> Html:
    return Html(f"<b>{escape(value)}</b>")


def link(label: str, href: str) -> Html:
    return Html(f'<a href="{escape(href)}" target="_self">{escape(label)}</a>')


def badge(label: str, tone: Tone = "") -> Html:
    return Html(f'<span class="pw-badge pw-{tone}">{escape(label)}</span>')


def join(parts: Iterable[Cell], by: str = " ") -> Html:
    return Html(by.join(_markup(part) for part in parts))


def heading(title: str, beside: Cell = "") -> None:
    """The page's title, with a quiet line beside or below it."""
    show(Html(f'<div class="pw-head"><h1>{escape(title)}</h1><span class="pw-sub">{_markup(beside)}</span></div>'))


def section(title: str, question: str = "") -> None:
    below = f'<span class="pw-question">{escape(question)}</span>' if question else ""
    show(Html(f'<div class="pw-section"><h2>{escape(title)}</h2>{below}</div>'))


def lead(name: str, value: str, change: Cell, basis: str, tone: Tone = "", meaning: str = "") -> None:
    """The leading number of a panel, its change beside it and what it rests on below."""
    show(
        Html(
            f'<div class="pw-lead" title="{escape(meaning)}"><div class="pw-name">{escape(name)}</div>'
            f'<span class="pw-value pw-{tone}">{escape(value)}</span>{_markup(change)}'
            f"<div>{note(basis).markup}</div></div>"
        )
    )


@dataclass(frozen=True)
class Part:
    """One row under a leading number. ``basis`` is its n, ``change`` is against the window before."""

    name: str
    value: str
    basis: str
    change: Cell
    tone: Tone = ""
    meaning: str = ""


def parts(rows: Sequence[Part]) -> None:
    """Rows beside a leading number; the column of changes only where there are any."""
    with_changes = any(row.change for row in rows)
    body = "".join(
        f'<tr title="{escape(row.meaning)}"><td>{escape(row.name)}</td>'
        f'<td class="pw-{row.tone}"><b>{escape(row.value)}</b></td><td class="pw-quiet">{escape(row.basis)}</td>'
        + (f"<td>{_markup(row.change)}</td>" if with_changes else "")
        + "</tr>"
        for row in rows
    )
    head = f"<th></th><th></th><th>n</th>{'<th>change</th>' if with_changes else ''}"
    show(Html(f'<table class="pw-parts"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'))


def facts(items: Sequence[tuple[str, Cell, str]]) -> None:
    """Named values side by side: name, value, a quiet line below."""
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{_markup(value)}<small>{escape(below)}</small></dd></div>"
        for name, value, below in items
    )
    show(Html(f'<dl class="pw-facts">{cells}</dl>'))


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], picked: frozenset[int] = frozenset()) -> None:
    """A plain table; ``picked`` are the indices of rows to mark."""
    classes = ["pw-num" if column.numeric else "pw-text" if column.text else "" for column in columns]
    head = "".join(
        f'<th class="{name}">{escape(column.title)}</th>' for name, column in zip(classes, columns, strict=True)
    )
    body = "".join(
        f'<tr class="{"pw-picked" if index in picked else ""}">'
        + "".join(f'<td class="{name}">{_markup(cell)}</td>' for name, cell in zip(classes, row, strict=True))
        + "</tr>"
        for index, row in enumerate(rows)
    )
    show(
        Html(
            f'<div class="pw-table-scroll"><table class="pw-table"><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )
    )


def bullets(items: Sequence[Cell]) -> None:
    show(Html('<ul class="pw-list">' + "".join(f"<li>{_markup(item)}</li>" for item in items) + "</ul>"))


def strip(items: Sequence[Cell]) -> None:
    """Short items side by side."""
    show(Html('<ul class="pw-strip">' + "".join(f"<li>{_markup(item)}</li>" for item in items) + "</ul>"))


def banner(lines: Sequence[Cell], tone: Literal["warn", "bad"]) -> None:
    """What must not be missed, one line each."""
    inside = "".join(f"<div>{_markup(line)}</div>" for line in lines)
    show(Html(f'<div class="pw-banner pw-tone-{tone}" role="status">{inside}</div>'))


def quote(value: str) -> None:
    show(Html(f'<div class="pw-quote">{escape(value)}</div>'))


def prose(value: str) -> None:
    show(Html(f'<div class="pw-prose">{escape(value)}</div>'))


def _markup(cell: Cell) -> str:
    return cell.markup if isinstance(cell, Html) else escape(cell)
