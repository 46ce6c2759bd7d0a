"""Turns through the real layer and real OpenTelemetry, and the held-out judgement."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from demo.agents import BAD_ARGUMENTS, Agents
from demo.drive import Driver, arguments_for, bootstrap_mean, ndcg
from demo.library import Query, library
from discovery.layer import DiscoveryLayer
from discovery.registry import REGISTRY_PATH
from discovery.weights import WEIGHTS_PATH
from pickwise.trace import SelectionTracer
from tests.discovery.service import service
from tests.pickwise.receiver import OtlpReceiver, otlp_receiver


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as running:
        yield running


@pytest.fixture(scope="module")
def layer(receiver: OtlpReceiver) -> Iterator[DiscoveryLayer]:
    documents = {
        REGISTRY_PATH: {"registry_version": "r", "skills": library()},
        WEIGHTS_PATH: {"version": "w", "explore": {"shuffle_fraction": 0.05}},
    }
    with service(documents=documents) as server:
        made = DiscoveryLayer(server.url, tracer=SelectionTracer(endpoint=receiver.endpoint), instance="t", seed=1)
        made.start()
        yield made
        made.close()
        made.tracer.shutdown()


def test_turns_leave_selections_calls_and_verdicts(layer: DiscoveryLayer, receiver: OtlpReceiver) -> None:
    driver = Driver(layer, layer.tracer, Agents(7))
    turns = list(driver.agents.turns(150, "logged"))
    for number, turn in enumerate(turns):
        driver.turn(turn, "logged", number / 150)
    assert layer.tracer.flush()
    facts = receiver.facts
    assert [event.query for event in facts.selections] == [turn.query.text for turn in turns]
    assert all(len(event.candidates) == 8 and event.ranked for event in facts.selections)
    by_id = {event.event_id: event for event in facts.selections}
    whole = [call for call in facts.calls if call.phase is None]
    picked = sorted((event.event_id or "", skill) for event in facts.selections for skill in event.picks or [])
    called = sorted({(call.call_id, call.selection_id or "", call.skill_id) for call in whole})
    assert picked == sorted((selection, skill) for _, selection, skill in called)
    assert all(call.selection_id in by_id for call in whole)
    assert any(call.ok is False for call in whole)
    assert all(call.error_kind for call in whole if call.ok is False)
    assert {call.phase for call in facts.calls} == {None, "validate", "exec"}
    assert all(verdict.selection_id in by_id for verdict in facts.feedback)
    previous = [event.previous_skill_id for event in facts.selections if event.turn == 1]
    assert previous == [None] * len(previous)
    assert any(event.previous_skill_id for event in facts.selections)
    assert {event.language for event in facts.selections} == {"en", "zh"}


def test_ndcg_judges_without_sending(layer: DiscoveryLayer, receiver: OtlpReceiver) -> None:
    before = len(receiver.facts.selections)
    judged = ndcg(
        layer,
        [Query("predicts temperature, rain and wind", "weather_forecast", "en"), Query("weather", "none", "en")],
        "steep-1",
        learned=False,
    )
    layer.tracer.flush()
    assert judged.gains == [1.0, 0.0]
    assert judged.by_model == 0.0
    assert len(receiver.facts.selections) == before


def test_arguments_follow_the_schema_but_for_the_one_that_confuses() -> None:
    assert arguments_for("hotel_book") == {
        "hotel_id": "example",
        "guest": "example",
        "check_in": "example",
        "nights": 3,
    }
    assert arguments_for("flight_book")["seat"] == "window"
    assert arguments_for(BAD_ARGUMENTS)["tax_code"] == "19 %"
    assert arguments_for("no_such_skill") == {}


def test_bootstrap_interval() -> None:
    mean, low, high = bootstrap_mean([0.0, 1.0] * 200)
    assert mean == 0.5
    assert 0.44 < low < 0.5 < high < 0.56
    assert bootstrap_mean([0.3] * 10) == pytest.approx((0.3, 0.3, 0.3))
