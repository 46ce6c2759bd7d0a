"""Pages run by Streamlit's own test runner: filters, windows, projects, and text that could do harm."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from shutil import copytree

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest

from analytics import nightly
from analytics.settle import settle
from collector.lake import Lake
from dashboard import data
from dashboard.links import CONFUSED, QUESTIONS, SELECTIONS_LIST, SKILLS_LIST
from dashboard.state import PROJECT_KEY, WINDOW_KEY
from pickwise.settings import Settings
from tests.dashboard.conftest import Seeded
from tests.dashboard.seeding import FAILING_SKILL, Event, seed, write_events

Open = Callable[..., AppTest]

ROW = re.compile(r"<tr class=\"(?:pw-picked)?\">")
CELL = re.compile(r"<td[^>]*>(.*?)</td>")


@pytest.fixture
def open_page(monkeypatch: pytest.MonkeyPatch) -> Open:
    """Runs one page over a folder; keywords are query parameters."""
    # The runner puts its script there; who starts a process later would run it again.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])

    def run(name: str, data_dir: Path, **parameters: str) -> AppTest:
        def script(name: str) -> None:
            from importlib import import_module

            from dashboard import state

            state.sidebar()
            state.render(import_module(f"dashboard.views.{name}").page)

        monkeypatch.setenv("PICKWISE_DATA_DIR", str(data_dir))
        app = AppTest.from_function(script, args=(name,), default_timeout=60)
        for key, value in parameters.items():
            app.query_params[key] = value
        return app.run()

    return run


def html(app: AppTest) -> str:
    assert not app.exception, app.exception[0].message
    return "\n".join(element.proto.body for element in app.get("html"))


def rows(app: AppTest) -> int:
    return len(ROW.findall(html(app)))


def strip(cell: str) -> str:
    """What of a cell is read."""
    return unescape(re.sub("<[^>]*>", "", cell))


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ("Fallback", lambda seeded: sum(bool(event["fallback"]) for event in seeded.of_type("selection"))),
        (
            "With a failed call",
            lambda seeded: len({event["selection_id"] for event in seeded.of_type("call") if not event["ok"]}),
        ),
        ("All", lambda seeded: min(100, len(seeded.of_type("selection")))),
    ],
)
def test_the_list_of_selections_is_filtered(
    open_page: Open, seeded: Seeded, chosen: str, expected: Callable[[Seeded], int]
) -> None:
    app = open_page("selection", seeded.data_dir)
    app.button_group[0].set_value(chosen).run()
    assert rows(app) == expected(seeded)


def test_mismatches_are_those_of_the_metric(open_page: Open, seeded: Seeded) -> None:
    from analytics.query import metric
    from analytics.tables import Tables

    app = open_page("selection", seeded.data_dir)
    app.button_group[0].set_value("Mismatches").run()
    (whole,) = metric(Tables(seeded.data_dir).connect(), "mismatch_rate")["rows"]
    assert rows(app) == round(whole["value"] * whole["n"])


def test_skills_are_found_by_words(open_page: Open, seeded: Seeded) -> None:
    app = open_page("skill", seeded.data_dir)
    app.text_input[0].set_value("billing refund").run()
    text = html(app)
    assert "billing.refund_full" in text
    assert "billing.refund_partial" in text
    assert FAILING_SKILL not in text


def test_what_is_picked_instead_is_listed_by_pair(open_page: Open, seeded: Seeded) -> None:
    """Counted from the events: the first candidate is not among the picks."""
    led: Counter[str] = Counter()
    instead: Counter[tuple[str, str]] = Counter()
    for event in seeded.of_type("selection"):
        first, picks = event["candidates"][0]["skill_id"], {*event["picks"]}
        led[first] += bool(picks)
        instead.update((first, pick) for pick in picks if first not in picks)
    text = html(open_page("skill", seeded.data_dir, **{SKILLS_LIST: CONFUSED}))
    (most, times), *_ = sorted(instead.items(), key=lambda pair: (-pair[1], pair[0]))
    shown = [[strip(cell) for cell in CELL.findall(line)] for line in ROW.split(text)[1:]]
    assert shown[0][:4] == [*most, str(times), str(led[most[0]])]
    assert len(shown) == min(len(instead), 100)
    portrait = html(open_page("skill", seeded.data_dir, skill_id=most[0]))
    assert any([strip(cell) for cell in CELL.findall(line)] == shown[0][1:] for line in ROW.split(portrait))


def test_kinds_of_questions_stand_by_name_the_weakest_first(open_page: Open, tmp_path: Path) -> None:
    """Questions about invoices always fail, those about flights never; their names come from a night."""
    now = datetime.now(UTC).replace(microsecond=0)
    events: list[Event] = []
    for i in range(48):
        query = f"overdue invoice {i}" if i < 24 else f"cheap flight to Oslo {i}"
        common = {"time": (now - timedelta(minutes=50 - i)).isoformat(), "session_id": f"s{i}"}
        menu = [{"skill_id": "a", "score": 0.9}, {"skill_id": "b", "score": 0.5}]
        turn = {"type": "selection", "event_id": f"e{i}", "query": query, "candidates": menu, "picks": ["a"]}
        call = {"type": "call", "event_id": f"c{i}", "selection_id": f"e{i}", "skill_id": "a", "ok": i >= 24}
        events += [common | turn, common | call]
    write_events(tmp_path, events)
    app = open_page("selection", tmp_path, **{SELECTIONS_LIST: QUESTIONS})
    assert "No kind of question is known" in html(app)
    nightly.run(tmp_path, Settings(data_dir=tmp_path, embedder="words"), now=now + timedelta(days=1))
    data.source.clear()
    text = html(open_page("selection", tmp_path, **{SELECTIONS_LIST: QUESTIONS}))
    names, *metrics = zip(*([strip(cell) for cell in CELL.findall(line)] for line in ROW.split(text)[1:]), strict=True)
    assert "invoice" in names[0]
    assert "flight" in names[1]
    assert [column[0] for column in metrics] == ["100\xa0% n = 24", "0\xa0% n = 24", "100\xa0% n = 24, else 0\xa0%"]
    assert [column[1] for column in metrics] == ["100\xa0% n = 24", "0\xa0% n = 24", "0\xa0% n = 24"]
    assert text.count('class="pw-bad"') == 1


def test_an_unknown_list_is_the_usual_one(open_page: Open, seeded: Seeded) -> None:
    for name, key in (("skill", SKILLS_LIST), ("selection", SELECTIONS_LIST)):
        app = open_page(name, seeded.data_dir, **{key: "<b>none</b>"})
        assert app.button_group[0].value == "All"
        assert rows(app) > 20


def test_a_window_without_events_says_when_the_newest_is(open_page: Open, tmp_path: Path) -> None:
    last_week = datetime.now(UTC) - timedelta(days=5)
    seed(tmp_path, 20, last_week)
    app = open_page("overview", tmp_path)
    assert "Selection quality" in html(app)
    app.selectbox(key=WINDOW_KEY).set_value("Last hour").run()
    text = html(app)
    assert "Nothing in this window" in text
    assert f"{last_week:%-d %b %Y}" in text


def test_projects_are_kept_apart(open_page: Open, tmp_path: Path) -> None:
    seed(tmp_path, 20)
    seed(tmp_path, 30, project="second")
    app = open_page("overview", tmp_path)
    assert "n = 20" in html(app)
    app.selectbox(key=PROJECT_KEY).set_value("second").run()
    text = html(app)
    assert "n = 30" in text
    assert "project=second" in text


def test_hostile_text_is_shown_as_text(open_page: Open, tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>"
    time = datetime.now(UTC).isoformat()
    menu = [{"skill_id": evil, "score": 0.5}]
    other = [{"skill_id": "b", "score": 0.6}, *menu]
    events: list[Event] = [
        {"type": "selection", "event_id": "e1", "time": time, "query": evil, "candidates": menu, "picks": [evil]},
        {"type": "selection", "event_id": "e2", "time": time, "query": evil, "candidates": other, "picks": [evil]},
        {
            "type": "feedback",
            "time": time,
            "selection_id": "e1",
            "kind": "wrong_skill",
            "value": evil,
            "expected": [evil],
        },
    ]
    call = {"type": "call", "time": time, "selection_id": "e1", "skill_id": evil, "ok": False, "error_message": evil}
    events += [call | {"call_id": f"c{number}", "latency_ms": 5.0} for number in range(6)]
    write_events(tmp_path, events)
    for name, parameters in (
        ("overview", {}),
        ("selection", {}),
        ("selection", {"event_id": "e1"}),
        ("skill", {}),
        ("skill", {SKILLS_LIST: CONFUSED}),
        ("skill", {"skill_id": evil}),
    ):
        text = html(open_page(name, tmp_path, **parameters))
        assert evil not in text, name
        assert "&lt;img src=x" in text, name


def test_an_alert_stands_above_everything_until_it_is_resolved(open_page: Open, tmp_path: Path) -> None:
    seed(tmp_path, 20)
    lake, now = Lake(tmp_path), datetime.now(UTC)

    def change(state: str, at: datetime) -> None:
        row = {
            "project": "default", "date": at.date(), "time": at, "alert_id": "a1", "rule": "failed_tools",
            "state": state, "severity": "critical", "started_at": now, "message": "calls fail more than they should",
        }  # fmt: skip
        lake.append("alerts", pl.DataFrame([row]))

    change("firing", now)
    for name in ("overview", "alerts"):
        assert 'class="pw-banner pw-tone-bad" role="status"><div>calls fail more' in html(open_page(name, tmp_path))
    change("resolved", now + timedelta(minutes=5))
    data.source.clear()
    assert "pw-banner" not in html(open_page("overview", tmp_path))
    assert "resolved" in html(open_page("alerts", tmp_path))


def test_weights_are_shown_with_their_reasons(open_page: Open, seeded: Seeded) -> None:
    from pickwise.settings import Settings
    from ranker import weights

    document = weights.refresh(seeded.data_dir, Settings(data_dir=seeded.data_dir), "default")
    text = html(open_page("weights", seeded.data_dir))
    assert document.version in text
    finished = {event["call_id"]: event["ok"] for event in seeded.of_type("call") if event["skill_id"] == "docs.read"}
    called = {event["call_id"] for event in seeded.of_type("call") if event["skill_id"] == "docs.read"}
    row = next(line for line in text.split("<tr") if "docs.read" in line)
    assert f"of {len(called)}<" in row, (row, finished)


PAGES = ("overview", "skill", "selection", "weights", "alerts")


@pytest.mark.parametrize("page", PAGES)
def test_a_damaged_log_of_a_table_is_said_in_a_sentence(
    open_page: Open, seeded: Seeded, tmp_path: Path, page: str
) -> None:
    folder = Path(copytree(seeded.data_dir, tmp_path / "damaged"))
    for entry in (folder / "lake" / "calls" / "_delta_log").glob("*.json"):
        entry.write_bytes(entry.read_bytes()[:50])
    app = open_page(page, folder)
    assert not app.exception
    (said,) = {error.value for error in app.error}
    assert "lake/calls can't be read" in said
    assert "from a backup" in said


def test_damaged_segments_are_made_again(open_page: Open, seeded: Seeded, tmp_path: Path) -> None:
    folder = Path(copytree(seeded.data_dir, tmp_path / "damaged"))
    settle(folder)
    expected = html(open_page("overview", folder))
    for file in (folder / "settled").glob("selections-*.parquet"):
        content = file.read_bytes()
        file.write_bytes(content[:4] + bytes(len(content) - 12) + content[-8:])
    data.projects.clear()
    for page in ("selection", "overview"):
        app = open_page(page, folder)
        assert not app.exception
        assert not app.error
    assert html(app) == expected
