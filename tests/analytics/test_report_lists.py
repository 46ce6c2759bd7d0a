"""The report's lists of what is confused, of weak questions and of chains: the same in every form, and only text."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from markdown_it import MarkdownIt

from analytics.chains import stored
from analytics.cluster_weakness import clusters_by_weakness
from analytics.confusion import confusions
from analytics.report import report
from analytics.report_forms import rendered
from tests.analytics.conftest import House
from tests.analytics.test_clusters import DAY, FLIGHTS, WEATHER, asking, night
from tests.analytics.test_report_html import HOSTILE, SHOWN, Page


@pytest.fixture
def house_of_all(house: House) -> House:
    """24 sessions about the weather that pass over a skill with a bad name, 24 about flights; each calls two skills."""
    events: list[dict[str, Any]] = []
    for i in range(48):
        query, picks = (WEATHER[i % 6], ["b"]) if i < 24 else (FLIGHTS[i % 6], [HOSTILE])
        turn = asking(query, i, candidates=[{"skill_id": HOSTILE}, {"skill_id": "b"}], picks=picks)
        time = DAY + timedelta(hours=2, minutes=i)
        known = {"type": "call", "session_id": f"s{i}", "selection_id": turn["event_id"], "ok": True}
        calls = [
            known | {"skill_id": skill, "event_id": f"{skill}{i}", "time": (time + timedelta(seconds=at)).isoformat()}
            for at, skill in enumerate(("b", HOSTILE))
        ]
        events += [turn, *calls]
    house.events(*events)
    night(house)
    return house


def test_the_document_has_the_first_of_each(house_of_all: House) -> None:
    connection = house_of_all.connect()
    found = report(connection)
    assert found["confused"] == confusions(connection, limit=5)
    assert [(row["skill_id"], row["instead"], row["n"], row["first"]) for row in found["confused"]] == [
        (HOSTILE, "b", 24, 48)
    ]
    assert found["weak_clusters"] == [row for row in clusters_by_weakness(connection) if row["weak_by"]]
    assert [row["weak_by"] for row in found["weak_clusters"]] == [["mismatch_rate"]]
    assert [row["skills"] for row in found["chains"]] == [row["skills"] for row in stored(connection)]
    assert [row["skills"] for row in found["chains"]] == [["b", HOSTILE]]
    assert not {"confused", "weak_clusters", "chains"} & {*report(connection, with_lists=False)}


def test_every_form_says_the_same_under_the_same_decision(house_of_all: House) -> None:
    connection = house_of_all.connect()
    found = report(connection)
    text, markdown = (rendered(connection, found, form) for form in ("text", "markdown"))
    html = rendered(connection, found, "html")
    page = "\n".join(Page(html).texts)
    for form in (markdown, page):
        at = [form.index(title) for title in ("Selection quality", "Confused most", "Questions that go worse")]
        after = [form.index(title) for title in ("Call reliability", "Chains of successful", "Hallucination and")]
        assert at + after == sorted(at + after)
        for cell in ("100.0 % (n = 24)", "1.00", "50.0 %", "mismatch_rate", "unknown"):
            assert cell in form
    for title in ("Confused most", "Questions that go worse than the rest", "Chains of successful sessions"):
        assert title in text
    assert f"{SHOWN} → b" in page
    assert f"b → {SHOWN}" in page
    assert {"script", "img", "a"}.isdisjoint(Page(html).tags)
    read = Page(MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown))
    assert {"script", "img", "a"}.isdisjoint(read.tags)


def test_what_is_empty_does_not_stand_there(house: House) -> None:
    house.events(asking("what is the weather", 1, "a"))
    connection = house.connect()
    for form in ("text", "markdown", "html"):
        page = rendered(connection, report(connection), form)
        assert not any(title in page for title in ("Confused most", "Questions that go worse", "Chains of"))
