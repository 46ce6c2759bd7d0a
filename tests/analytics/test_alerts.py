"""Alert rules over real tables, with a compressed clock and a real receiver."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import polars as pl
import pytest

from analytics import alert_links, silences
from analytics.alert_states import AlertBook, locked
from analytics.alerts import Evaluator, raise_status_changes
from analytics.notify import Webhooks
from analytics.silences import Silence
from collector.control import Control
from collector.lake import Lake
from dashboard import links, state
from pickwise.settings import Settings
from tests.analytics.conftest import House, at, fact, moment
from tests.analytics.receiver import Receiver

ROOT = Path(__file__).resolve().parents[2]
ONE_RULE = """
rules:
  - name: failures
    metric: failed_tool_rate
    by: [skill]
    window: 10m
    comparison: ">="
    threshold: 0.5
    for: 30s
    resolve: 30s
    min_n: 4
    severity: critical
"""

Open = Callable[..., Evaluator]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().serving() as found:
        yield found


@pytest.fixture
def evaluator(house: House, receiver: Receiver, tmp_path: Path) -> Iterator[Open]:
    """Opens evaluators over the house: with the shipped rules, or those of a text."""
    opened: list[Evaluator] = []

    def open_one(rules: str | None = None, urls: list[str] | None = None) -> Evaluator:
        path = None
        if rules is not None:
            path = tmp_path / "rules.yaml"
            path.write_text(rules)
        settings = Settings(
            data_dir=house.folder,
            webhook_urls=[receiver.url] if urls is None else urls,
            webhook_secret="key",
            alert_rules=path,
        )
        opened.append(Evaluator(house.folder, settings))
        return opened[-1]

    yield open_one
    for found in opened:
        found.close()


def selection(seconds: float, fallback: bool = False, **fields: Any) -> dict[str, Any]:
    candidates = [{"skill_id": "a", "score": 0.9}, {"skill_id": "b", "score": 0.1}]
    base = {"type": "selection", "event_id": f"s{seconds}", "time": at(seconds), "query": "q", "ranked": True}
    return base | {"candidates": candidates, "picks": ["a"], "fallback": fallback} | fields


def calls(seconds: float, ok: int, failed: int, skill: str = "a") -> list[dict[str, Any]]:
    outcomes = [True] * ok + [False] * failed
    return [
        {
            "type": "call",
            "event_id": f"{skill}{seconds}-{i}",
            "time": at(seconds + i / 100),
            "skill_id": skill,
            "ok": good,
        }
        for i, good in enumerate(outcomes)
    ]


def states(house: House, rule: str) -> list[str]:
    rows = house.lake.read("alerts").sort("time")
    return [row["state"] for row in rows.iter_rows(named=True) if row["rule"] == rule]


def test_fallback_usage_fires_within_two_minutes_says_it_once_and_resolves_by_itself(
    house: House, receiver: Receiver, evaluator: Open
) -> None:
    found = evaluator()
    house.events(*(selection(s) for s in range(-60, 0, 10)))
    assert found.evaluate(moment(0)) == []
    house.events(selection(5, fallback=True))
    for second in range(15, 240, 15):
        found.evaluate(moment(second))
    taken = [post for post in receiver.taken if post["rule"] == "fallback_usage"]
    assert [post["state"] for post in taken] == ["firing", "resolved"]
    firing, resolved = taken
    assert firing["time"] == "2026-03-02T12:00:15Z"
    # One of the seven ranked selections between 11:58:15 and 12:00:15.
    assert (firing["value"], firing["n"], firing["severity"]) == (pytest.approx(1 / 7), 7, "warning")
    assert firing["window"] == {"from": "2026-03-02T11:58:15Z", "to": "2026-03-02T12:00:15Z"}
    assert firing["link"] == "http://127.0.0.1:8501/?project=default&window=Last+hour"
    assert "fallback_rate is 14.3 %, > 1.0 % (n = 7)" in firing["message"]
    assert resolved["time"] <= "2026-03-02T12:02:45Z"
    assert firing["alert_id"] == resolved["alert_id"] != firing["id"] != resolved["id"]
    assert states(house, "fallback_usage") == ["firing", "resolved"]


def test_pending_fires_after_its_time_group_by_group(house: House, receiver: Receiver, evaluator: Open) -> None:
    found = evaluator(ONE_RULE)
    house.events(*calls(0, ok=2, failed=2), *calls(0, ok=3, failed=1, skill="b"), *calls(0, ok=0, failed=3, skill="c"))
    assert found.evaluate(moment(10)) == []
    assert states(house, "failures") == ["pending"]
    assert found.evaluate(moment(39)) == []
    (told,) = found.evaluate(moment(40))
    assert (told.state, told.group, told.value, told.n) == ("firing", "a", 0.5, 4)
    assert [post["group"] for post in receiver.taken] == ["a"]
    # The calls leave the window; 30 s later it is over.
    assert found.evaluate(moment(601)) == []
    (told,) = found.evaluate(moment(640))
    assert (told.state, told.group) == ("resolved", "a")


def test_pending_that_goes_away_is_no_news(house: House, receiver: Receiver, evaluator: Open) -> None:
    found = evaluator(ONE_RULE)
    house.events(*calls(0, ok=2, failed=2))
    found.evaluate(moment(10))
    house.events(*calls(15, ok=10, failed=0))
    found.evaluate(moment(45))
    assert states(house, "failures") == ["pending", "resolved"]
    assert receiver.posts == []


def test_a_short_calm_does_not_resolve(house: House, receiver: Receiver, evaluator: Open) -> None:
    found = evaluator(ONE_RULE)
    house.events(*calls(0, ok=2, failed=2))
    found.evaluate(moment(10))
    found.evaluate(moment(40))
    house.events(*calls(41, ok=1, failed=0))
    found.evaluate(moment(45))
    house.events(*calls(46, ok=0, failed=2))
    for second in (50, 80, 110):
        found.evaluate(moment(second))
    assert [post["state"] for post in receiver.taken] == ["firing"]


def test_a_restart_repeats_nothing(house: House, receiver: Receiver, evaluator: Open) -> None:
    house.events(*calls(0, ok=0, failed=4))
    for second in (10, 40, 50):
        evaluator(ONE_RULE).evaluate(moment(second))
    assert [post["state"] for post in receiver.taken] == ["firing"]
    assert states(house, "failures") == ["pending", "firing"]


def test_a_receiver_that_was_away_gets_all_in_order_later(house: House, receiver: Receiver, evaluator: Open) -> None:
    found = evaluator(ONE_RULE)
    house.events(*calls(0, ok=0, failed=4))
    receiver.answers = [503] * 3
    found.evaluate(moment(10))
    found.evaluate(moment(40))
    assert receiver.taken == []
    # It rests for ten seconds, also over a resolved state; then both come, oldest first.
    found.evaluate(moment(49))
    assert len(receiver.posts) == 3
    receiver.answers = [503, 200]
    found.evaluate(moment(51))
    assert [post["state"] for post in receiver.taken] == ["firing"]
    found.evaluate(moment(700))
    found.evaluate(moment(740))
    assert [post["state"] for post in receiver.taken] == ["firing", "resolved"]
    assert Control(house.folder).items("alert/") == {}


def test_a_dead_receiver_holds_up_no_other(house: House, receiver: Receiver, evaluator: Open) -> None:
    found = evaluator(ONE_RULE, urls=["http://127.0.0.1:9/", receiver.url])
    house.events(*calls(0, ok=0, failed=4))
    found.evaluate(moment(10))
    found.evaluate(moment(40))
    assert [post["state"] for post in receiver.taken] == ["firing"]
    found.evaluate(moment(60))
    assert len(receiver.posts) == 1


def test_what_was_recorded_before_a_crash_is_not_recorded_again(house: House, evaluator: Open) -> None:
    house.events(*calls(0, ok=0, failed=4))
    found = evaluator(ONE_RULE)
    found.evaluate(moment(10))
    before = Control(house.folder).items("alert/")
    found.evaluate(moment(40))
    # As after a crash between the append to the table and the mark that it was made.
    ((key, document),) = Control(house.folder).items("alert/").items()
    lost = evaluator(ONE_RULE, urls=[])
    Control(house.folder).put(f"alert/{key}", before[key])
    lost.evaluate(moment(40))
    assert states(house, "failures") == ["pending", "firing"]
    assert document["state"] == "firing"


def test_half_failure_fires_by_instance_and_ends_with_recovery_or_loss(house: House, evaluator: Open) -> None:
    found = evaluator()

    def route(seconds: float, instance: str, state: str) -> dict[str, Any]:
        return {"type": "route", "time": at(seconds), "instance": instance, "state": state, "reason": "p99"}

    house.events(*(route(s, "one", "degraded" if not s else "probe") for s in (0, 30, 60, 90)))
    house.events(route(0, "two", "degraded"), route(60, "two", "recovered"), route(0, "three", "degraded"))
    assert found.evaluate(moment(90)) == []
    told = found.evaluate(moment(91))
    assert [(n.rule, n.group, n.state) for n in told] == [
        ("half_failure", "one", "firing"),
        ("half_failure", "three", "firing"),
    ]
    house.events(route(120, "one", "recovered"))
    (told_one,) = found.evaluate(moment(121))
    assert (told_one.group, told_one.state) == ("one", "resolved")
    (told_three,) = found.evaluate(moment(301))
    assert (told_three.group, told_three.state) == ("three", "resolved")
    assert told_three.message.endswith("lost")


def test_half_failure_is_told_within_two_minutes_once_and_resolves_by_itself(
    house: House, receiver: Receiver, evaluator: Open
) -> None:
    found = evaluator()
    for second in range(0, 300, 15):
        if second % 30 == 0:
            told = "degraded" if second == 0 else "probe" if second < 240 else "recovered"
            route = {"type": "route", "time": at(second), "instance": "one", "state": told, "reason": "p99"}
            house.events(route)
        found.evaluate(moment(second + 1))
    firing, resolved = receiver.taken
    assert [post["state"] for post in receiver.taken] == ["firing", "resolved"]
    assert (firing["rule"], firing["group"], firing["severity"]) == ("half_failure", "one", "critical")
    assert firing["time"] <= "2026-03-02T12:02:00Z"
    assert resolved["time"] == "2026-03-02T12:04:01Z"
    assert firing["message"].endswith("degraded_for_seconds is 91.0 s, > 90.0 s (n = 1); p99")


def test_an_alert_of_a_skill_opens_its_page(house: House, evaluator: Open) -> None:
    house.events(*calls(0, ok=0, failed=4, skill="mail & more"))
    (told,) = evaluator(ONE_RULE.replace("for: 30s", "for: 0s")).evaluate(moment(10))
    assert told.link == "http://127.0.0.1:8501/skill?project=default&skill_id=mail+%26+more"


def test_links_are_addresses_of_the_dashboard() -> None:
    base = "http://127.0.0.1:8501"
    for link, page, keys in (
        (alert_links.overview(base, "p", timedelta(minutes=2)), "", {state.PROJECT_KEY, state.WINDOW_KEY}),
        (alert_links.skill(base, "p", "a/b?c"), links.SKILLS, {state.PROJECT_KEY, links.SKILL_ID}),
        (alert_links.alerts(base, "p"), links.ALERTS, {state.PROJECT_KEY}),
    ):
        address = urlsplit(link)
        assert address.path.strip("/") == page
        assert set(parse_qs(address.query)) == keys
    lengths = [timedelta(minutes=1), timedelta(hours=2), timedelta(days=2), timedelta(days=20), timedelta(days=99)]
    shown = [parse_qs(urlsplit(alert_links.overview(base, "p", length)).query)["window"][0] for length in lengths]
    assert shown == [name for name in state.WINDOWS if name != state.DEFAULT_WINDOW]


def test_killed_before_the_answer_it_tells_no_other_receiver_again(
    house: House, receiver: Receiver, evaluator: Open, tmp_path: Path
) -> None:
    house.events(*calls(0, ok=0, failed=4))
    rules = tmp_path / "killed.yaml"
    rules.write_text(ONE_RULE.replace("for: 30s", "for: 0s"))
    with Receiver().serving() as second:
        urls = [receiver.url, second.url]
        script = f"""
import pathlib
from analytics.alerts import Evaluator
from pickwise.settings import Settings
from tests.analytics.conftest import moment
folder = pathlib.Path({str(house.folder)!r})
settings = Settings(data_dir=folder, webhook_urls={urls!r}, alert_rules=pathlib.Path({str(rules)!r}))
Evaluator(folder, settings).evaluate(moment(10))
"""
        process = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT)
        second.on_post = process.kill
        assert process.wait(60) == -signal.SIGKILL
        second.on_post = lambda: None
        for second_of in (20, 30):
            evaluator(rules.read_text(), urls=urls).evaluate(moment(second_of))
        # The one that answered is told once; the other one again, of a delivery that it knows by its id.
        assert len(receiver.posts) == 1
        assert len(second.posts) == 2
        assert len({headers["x-pickwise-delivery"] for _, headers, _, _ in second.posts}) == 1
    assert states(house, "failures") == ["firing"]


def test_a_silence_keeps_an_alert_back_until_it_ends(house: House, receiver: Receiver, evaluator: Open) -> None:
    found = evaluator(ONE_RULE.replace("for: 30s", "for: 0s"))
    with closing(Control(house.folder)) as control:
        silences.add(control, Silence(project="default", rule="failures", start=moment(0), end=moment(60)))
    house.events(*calls(0, ok=0, failed=4))
    found.evaluate(moment(10))
    assert states(house, "failures") == ["firing"]
    versions = Lake(house.folder).versions()
    found.evaluate(moment(59))
    assert (receiver.posts, Lake(house.folder).versions()) == ([], versions)
    found.evaluate(moment(60))
    found.evaluate(moment(75))
    assert [(post["state"], post["time"]) for post in receiver.taken] == [("firing", "2026-03-02T12:00:10Z")]


def test_what_came_and_went_in_a_silence_is_told_nobody(house: House, receiver: Receiver, evaluator: Open) -> None:
    found = evaluator(ONE_RULE.replace("for: 30s", "for: 0s").replace("resolve: 30s", "resolve: 0s"))
    with closing(Control(house.folder)) as control:
        silences.add(control, Silence(project="default", start=moment(0), end=moment(3600)))
    house.events(*calls(0, ok=0, failed=4))
    for second in (10, 700, 3601):
        found.evaluate(moment(second))
    assert states(house, "failures") == ["firing", "resolved"]
    assert receiver.posts == []
    assert Control(house.folder).items("alert/") == {}
    assert Control(house.folder).items("silence/") == {}


def test_who_was_told_that_it_fires_hears_of_its_end_in_a_silence(
    house: House, receiver: Receiver, evaluator: Open
) -> None:
    found = evaluator(ONE_RULE.replace("for: 30s", "for: 0s").replace("resolve: 30s", "resolve: 0s"))
    house.events(*calls(0, ok=0, failed=4), *calls(1, ok=0, failed=4, skill="b"))
    with closing(Control(house.folder)) as control:
        other = Silence(project="default", rule="failures", group="b", start=moment(0), end=moment(3600))
        silences.add(control, other)
        found.evaluate(moment(10))
        silences.add(control, Silence(project="default", start=moment(11), end=moment(3600)))
    found.evaluate(moment(700))
    assert [(post["group"], post["state"]) for post in receiver.taken] == [("a", "firing"), ("a", "resolved")]


def test_a_rule_is_silent_in_its_own_hours(house: House, receiver: Receiver, evaluator: Open) -> None:
    hours = '    silence: ["mon 11:00-12:01"]\n'
    found = evaluator(ONE_RULE.replace("for: 30s", "for: 0s") + hours)
    house.events(*calls(0, ok=0, failed=4))
    found.evaluate(moment(59))
    assert receiver.posts == []
    found.evaluate(moment(60))
    assert [post["state"] for post in receiver.taken] == ["firing"]


def test_a_receiver_that_refused_it_does_not_hear_of_its_end(house: House, receiver: Receiver, evaluator: Open) -> None:
    found = evaluator(ONE_RULE.replace("for: 30s", "for: 0s").replace("resolve: 30s", "resolve: 0s"))
    house.events(*calls(0, ok=0, failed=4))
    receiver.answers = [400]
    for second in (10, 700):
        found.evaluate(moment(second))
    assert len(receiver.posts) == 1
    assert Control(house.folder).items("alert/") == {}


def test_clocks_that_go_wrong_are_no_silence(house: House, evaluator: Open) -> None:
    # Their times say an hour before their receipt (noon), or an hour after now.
    house.events(*(selection(s - 3600) for s in range(100)))
    found = evaluator()
    assert found.evaluate(moment(1700)) == []
    (told,) = found.evaluate(moment(1801))
    assert (told.rule, told.value) == ("no_events", 1801)
    assert told.message.endswith("; no collector runs on this data folder")
    ahead = [fact(selection(9000 + s)) for s in range(100)]
    house.write(*((table, row | {"received_at": moment(1900)}) for table, row in ahead))
    assert [n.state for n in found.evaluate(moment(2000))] == ["resolved"]


def test_a_new_skill_that_degrades_is_another_alert(house: House, receiver: Receiver) -> None:
    evidence = {"calls": 20, "successes": 2, "window": {"from": at(-60), "to": at(0)}}
    base = {"skill_id": "a", "rollout_fraction": 0.1, "evidence": json.dumps(evidence), "reason": "failing"}
    steps = [("observation", None), ("degraded", "observation"), ("active", "degraded")]
    changes = pl.DataFrame(
        [
            base | {"time": moment(i), "status": status, "previous_status": before}
            for i, (status, before) in enumerate(steps)
        ]
    )
    webhooks = Webhooks(None)
    with closing(Control(house.folder)) as control:
        book = AlertBook(control, house.lake)
        raise_status_changes(book, "default", changes, moment(3), "http://127.0.0.1:8501")
        book.record()
        book.deliver(webhooks, [f"alertmanager+{receiver.url}"], moment(3))
    webhooks.close()
    posted = [post[0] for post in receiver.taken]
    severities = [alert["labels"]["severity"] for alert in posted]
    assert severities == ["info", "info", "warning", "warning"]
    assert [alert["endsAt"] < "2026-03-03" for alert in posted] == [False, True, False, True]
    assert posted[0]["generatorURL"] == "http://127.0.0.1:8501/skill?project=default&skill_id=a"


def test_silence_after_a_busy_day_fires_and_keeps_firing_until_events_come(house: House, evaluator: Open) -> None:
    found = evaluator()
    house.events(*(selection(s) for s in range(100)))
    assert found.evaluate(moment(1800)) == []
    (told,) = found.evaluate(moment(1900))
    assert (told.rule, told.state, told.value, told.n) == ("no_events", "firing", 1801, 100)
    assert found.evaluate(moment(3 * 86_400)) == []
    house.events(*(selection(3 * 86_400 + s) for s in range(100)))
    assert [(n.rule, n.state) for n in found.evaluate(moment(3 * 86_400 + 120))] == [("no_events", "resolved")]


def test_old_history_raises_nothing(house: House, evaluator: Open) -> None:
    house.events(*(selection(s, fallback=True) for s in range(200)), *calls(0, ok=0, failed=100))
    assert evaluator().evaluate(moment(30 * 86_400)) == []


def test_rerank_p99_is_read_from_its_stage(house: House, evaluator: Open) -> None:
    house.events(*(selection(s, stage_ms={"rerank": 400.0, "dense": 5.0}) for s in range(60)))
    found = evaluator()
    found.evaluate(moment(60))
    told = found.evaluate(moment(125))
    assert [(n.rule, n.state, n.value, n.n) for n in told] == [("rerank_p99", "firing", 400.0, 60)]


def test_an_alert_whose_rule_is_gone_is_resolved(house: House, evaluator: Open) -> None:
    house.events(*calls(0, ok=0, failed=4))
    for second in (10, 40):
        evaluator(ONE_RULE).evaluate(moment(second))
    (told,) = evaluator(ONE_RULE.replace("name: failures", "name: others")).evaluate(moment(50))
    assert (told.rule, told.state, told.message) == ("failures", "resolved", "the rule was removed")


def test_projects_are_apart(house: House, evaluator: Open) -> None:
    house.events(*calls(0, ok=0, failed=4), project="one")
    house.events(*calls(0, ok=4, failed=0), project="two")
    found = evaluator(ONE_RULE)
    found.evaluate(moment(10))
    assert [(n.project, n.state) for n in found.evaluate(moment(40))] == [("one", "firing")]


def test_an_evaluation_under_way_is_left_alone(house: House, evaluator: Open, caplog: pytest.LogCaptureFixture) -> None:
    house.events(*calls(0, ok=0, failed=4))
    found = evaluator(ONE_RULE.replace("for: 30s", "for: 0s"))
    with locked(house.folder, 1), caplog.at_level(logging.INFO):
        assert found.evaluate(moment(10)) == []
    assert "another process" in caplog.text
    assert len(found.evaluate(moment(11))) == 1


def test_a_quiet_round_writes_nothing(house: House, evaluator: Open) -> None:
    house.events(*calls(0, ok=4, failed=0))
    found = evaluator()
    found.evaluate(moment(10))
    versions = Lake(house.folder).versions()
    found.evaluate(moment(25))
    assert Lake(house.folder).versions() == versions
    assert Control(house.folder).items("alert/") == {}
