"""The report as one HTML page: whole, self-contained, and nothing but text where a name stands."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from markdown_it import MarkdownIt

from analytics.report import report
from analytics.report_forms import rendered
from tests.analytics.conftest import House, at, entry, moment

HOUR = 3600
HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)>|`](javascript:x)\x1b[31m\n# \u202eevil'
#: What of it a reader sees.
SHOWN = '"><script>alert(1)</script><img src=x onerror=alert(1)>|`](javascript:x) [31m #  evil'


class Page(HTMLParser):
    """The elements of a page, their attributes and the text of its table cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture
def hostile(house: House) -> House:
    """Two days; the second is worse, for a skill and with an agent whose names are attacks."""
    house.write(entry(HOSTILE))
    events: list[dict[str, Any]] = []
    for hour in range(48):
        for i in range(4):
            known = {"type": "call", "event_id": f"{hour}-{i}", "time": at(hour * HOUR + i), "agent": HOSTILE}
            events.append(known | {"skill_id": HOSTILE, "ok": hour < 24 and i > 0, "latency_ms": 10.0})
    return house.events(*events)


def found_in(house: House, by: tuple[str, ...] = ("skill", "agent")) -> dict[str, Any]:
    return report(house.connect(), "default", moment(24 * HOUR), moment(48 * HOUR), by)


def test_the_page_is_whole_and_loads_nothing(hostile: House) -> None:
    text = rendered(hostile.connect(), found_in(hostile), "html")
    page = Page(text)
    assert text.startswith("<!doctype html>")
    assert page.open == []
    allowed = {"html", "head", "meta", "title", "body", "div", "h1", "h2", "p", "ul", "li"}
    assert set(page.tags) <= allowed | {"table", "thead", "tbody", "tr", "th", "td", "svg", "polyline", "circle"}
    names = {name for name, _ in page.attributes}
    assert not {name for name in names if name.startswith("on") or name in {"src", "href", "srcset", "background"}}
    assert not any("url(" in (value or "") for _, value in page.attributes)


def test_names_are_text(hostile: House) -> None:
    page = Page(rendered(hostile.connect(), found_in(hostile), "html"))
    assert f"{SHOWN}, {SHOWN}" in page.texts


def test_markdown_and_text_take_names_for_nothing_else(hostile: House) -> None:
    markdown = rendered(hostile.connect(), found_in(hostile), "markdown")
    body = MarkdownIt().enable("table").render(markdown)
    page = Page(body)
    assert not {"script", "img", "a"} & set(page.tags)
    assert f"{SHOWN}, {SHOWN}" in page.texts
    text = rendered(hostile.connect(), found_in(hostile), "text")
    assert not re.search("[\x1b\u202e]", text)


def test_it_says_what_the_document_says(hostile: House) -> None:
    found = found_in(hostile, ())
    page = Page(rendered(hostile.connect(), found, "html"))
    texts = " ".join(page.texts)
    for decision in found["decisions"]:
        assert decision["question"] in texts
        assert all(m["metric"] in texts for m in decision["metrics"])
    assert "100.0 %" in texts
    assert "+75.0 pp" in texts
    assert "Look first" in texts


def test_a_trend_is_drawn_for_what_has_values(hostile: House) -> None:
    text = rendered(hostile.connect(), found_in(hostile, ()), "html")
    (picture,) = re.findall(r'aria-label="failed_tool_rate over time, 24 values between 1 and 1"', text)
    assert picture
    (points,) = re.findall(r'failed_tool_rate over time.*?points="([^"]+)"', text, re.DOTALL)
    assert len(points.split()) == 24
    whole = rendered(hostile.connect(), report(hostile.connect()), "html")
    # Over all that is kept there is a value a day, and the first day was the best.
    assert "failed_tool_rate over time, 3 values between 0.25 and 1" in whole


def test_nothing_there_is_a_page_too(house: House) -> None:
    for found in (report(house.connect()), report(house.connect(), "none", moment(0), moment(60), ["skill"])):
        text = rendered(house.connect(), found, "html")
        assert "No events in this project and window." in Page(text).texts
        assert "<svg" not in text
