"""The layer as a whole, over a real HTTP server, with real embeddings and real spans."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from discovery.history import ARTEFACT_PATH
from discovery.layer import DiscoveryLayer, NoRegistry
from discovery.registry import REGISTRY_PATH
from discovery.weights import WEIGHTS_PATH
from pickwise.attributes import from_attributes
from pickwise.embed import Embedder, Vectors, load_embedder
from pickwise.events import Call, Event, Route, Selection, decode_event
from pickwise.trace import SelectionTracer
from ranker.artefacts import Artefacts
from ranker.recall import Recall
from tests.discovery.service import Service

SKILLS = [
    {"skill_id": "flight_search", "description": "Finds scheduled passenger flights between two airports"},
    {"skill_id": "hotel_search", "description": "Lists hotels in a city for a stay"},
    {"skill_id": "weather_forecast", "description": "Predicts temperature and rain for a place"},
    {"skill_id": "money_transfer", "description": "Sends funds from an account to a payee"},
    {"skill_id": "express_zh", "name": "快递查询", "description": "根据运单号查询快件物流轨迹"},
    {"skill_id": "recipe_zh", "name": "菜谱查询", "description": "根据食材给出烹饪步骤和用量"},
]


class Breakable:
    """The real embedder, which can be slow or down."""

    def __init__(self, inner: Embedder) -> None:
        self.inner, self.down, self.delay_s, self.texts = inner, False, 0.0, 0

    @property
    def version(self) -> str:
        return self.inner.version

    def embed(self, texts: Sequence[str]) -> Vectors:
        if self.down:
            raise ConnectionError("model server is down")
        time.sleep(self.delay_s)
        self.texts += len(texts)
        return self.inner.embed(texts)


class Sent:
    """Events as they left, decoded from the finished spans."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = SelectionTracer(provider, agent="test")

    def all(self) -> list[Event]:
        raw = (from_attributes(dict(span.attributes or {})) for span in self.exporter.get_finished_spans())
        return [decode_event(item)[0] for item in raw if item is not None]

    def selections(self) -> list[Selection]:
        return [event for event in self.all() if isinstance(event, Selection)]

    def route_states(self) -> list[str]:
        return [event.state for event in self.all() if isinstance(event, Route)]


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def embedder() -> Breakable:
    return Breakable(load_embedder())


def put_weights(server: Service, **fields: Any) -> None:
    server.documents[WEIGHTS_PATH] = {"version": "w1", "skills": {}} | fields


@pytest.fixture
def ready(server: Service) -> Service:
    server.documents[REGISTRY_PATH] = {"registry_version": "r1", "skills": SKILLS}
    put_weights(server)
    return server


@contextmanager
def opened(server: Service, sent: Sent, embedder: Breakable, **options: Any) -> Iterator[DiscoveryLayer]:
    layer = DiscoveryLayer(server.url, tracer=sent.tracer, embedder=embedder, instance="t", seed=1, **options)
    layer.start()
    try:
        yield layer
    finally:
        layer.close()


@pytest.fixture
def layer(ready: Service, sent: Sent, embedder: Breakable) -> Iterator[DiscoveryLayer]:
    with opened(ready, sent, embedder) as running:
        yield running


def shown(selection: Any) -> list[str]:
    return [candidate.skill_id for candidate in selection.event.candidates]


def test_a_selection_is_found_offered_and_sent(layer: DiscoveryLayer, sent: Sent) -> None:
    with layer.select(
        "will it rain tomorrow", k=3, session_id="s", model="m-1", turn=2, previous_skill_id="hotel_search"
    ) as selection:
        assert shown(selection)[0] == "weather_forecast"
        assert len(shown(selection)) == 3
        selection.pick("weather_forecast")
        with selection.call("weather_forecast", {"place": "Cork"}):
            pass
    (event,) = sent.selections()
    assert (event.query, event.session_id, event.model, event.turn) == ("will it rain tomorrow", "s", "m-1", 2)
    assert (event.ranked, event.strategy, event.fallback, event.randomized) == (True, "hybrid", False, False)
    assert (event.registry_version, event.weights_version, event.model_version) == ("r1", "w1", None)
    assert event.embedding_version == load_embedder().version
    assert event.previous_skill_id == "hotel_search"
    assert event.picks == ["weather_forecast"]
    for candidate in event.candidates:
        assert candidate.score is not None
        assert candidate.bm25 is not None
        assert candidate.dense is not None
        assert candidate.source == "hybrid"
    stages = event.stage_ms
    assert stages is not None
    assert all(v is not None for v in (stages.embed, stages.sparse, stages.dense, stages.merge, stages.rerank))
    assert stages.total is not None
    (call,) = (event for event in sent.all() if isinstance(event, Call))
    assert call.selection_id == selection.selection_id


def test_chinese_is_found_and_named(layer: DiscoveryLayer, sent: Sent) -> None:
    with layer.select("我的包裹到哪里了") as selection:
        assert shown(selection)[0] == "express_zh"
    assert sent.selections()[0].language == "zh"


def test_a_named_skill_comes_first(layer: DiscoveryLayer) -> None:
    found = layer.search("use money_transfer for the hotel in the rain")
    assert found.candidates[0].skill_id == "money_transfer"
    assert found.candidates[0].source == "exact"


def test_without_a_registry_it_says_so(server: Service, sent: Sent, embedder: Breakable) -> None:
    with opened(server, sent, embedder) as layer, pytest.raises(NoRegistry, match="404"):
        layer.search("x")


def test_a_new_skill_is_searchable_after_a_poll_and_only_it_is_embedded(
    ready: Service, sent: Sent, embedder: Breakable
) -> None:
    with opened(ready, sent, embedder, poll_s=0.1) as layer:
        before = embedder.texts
        new = {"skill_id": "taxi_order", "description": "Sends a cab to an address"}
        ready.documents[REGISTRY_PATH] = {"registry_version": "r2", "skills": [*SKILLS, new]}
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and layer.search("taxi").registry_version != "r2":
            time.sleep(0.05)
        assert layer.search("send a cab to my address").candidates[0].skill_id == "taxi_order"
    queries = embedder.texts - before - 1
    assert queries >= 1  # besides the queries, one text: the new skill's


def test_an_outage_falls_back_to_keywords_and_recovers_as_a_pair(
    ready: Service, sent: Sent, embedder: Breakable
) -> None:
    with opened(ready, sent, embedder, probe_s=0.2) as layer:
        embedder.down = True
        for _ in range(30):
            with layer.select("hotels in a city") as selection:
                assert shown(selection)[0] == "hotel_search"
        embedder.down = False
        time.sleep(0.25)
        with layer.select("hotels in a city"):
            pass
        with layer.select("hotels in a city"):
            pass
    events = sent.selections()
    assert all(event.fallback and event.strategy == "bm25" for event in events[:30])
    assert events[0].fallback_reason == "embedding failed: ConnectionError"
    assert (events[29].fallback_reason or "").startswith("degraded: errors")
    assert events[29].embedding_version is None
    assert events[29].candidates[0].dense is None
    assert [event.fallback for event in events[30:]] == [False, False]
    states = sent.route_states()
    assert states[0] == "degraded"
    assert states[-2:] == ["probe", "recovered"]
    assert states.count("degraded") == states.count("recovered") == 1


def test_a_slow_model_is_not_waited_for(ready: Service, sent: Sent, embedder: Breakable) -> None:
    with opened(ready, sent, embedder, embed_budget_s=0.1) as layer:
        layer.search("warm up")
        embedder.delay_s = 1.0
        started = time.perf_counter()
        found = layer.search("hotels in a city")
        assert time.perf_counter() - started < 0.8
        assert found.fallback_reason == "embedding took longer than 100 ms"
        assert found.candidates[0].skill_id == "hotel_search"


def test_skills_that_could_not_be_embedded_are_embedded_later(ready: Service, sent: Sent, embedder: Breakable) -> None:
    embedder.down = True
    with opened(ready, sent, embedder, embed_budget_s=30.0) as layer:
        assert layer.search("hotels in a city").candidates[0].skill_id == "hotel_search"
        embedder.down = False
        assert layer.search("hotels").fallback_reason == "skills are not embedded yet"
        layer.refresh()
        assert layer.search("hotels").fallback_reason is None


def test_a_served_model_orders_within_its_budget_else_the_local_score(
    ready: Service, sent: Sent, embedder: Breakable
) -> None:
    put_weights(ready, model={"version": "m9", "features": [], "sha256": ""})
    ready.rank = lambda body: {"model_version": "m9", "candidates": body["candidates"][::-1]}
    with opened(ready, sent, embedder, rank_budget_s=0.5) as layer:
        retrieval = layer.search("will it rain", learned=False)
        ordered = layer.search("will it rain", model="m-1")
        assert [c.skill_id for c in ordered.candidates] == [c.skill_id for c in retrieval.candidates][::-1]
        assert ordered.model_version == "m9"
        assert ready.asked[-1]["model"] == "m-1"
        ready.status = 500
        local = layer.search("will it rain")
        assert local.candidates[0].skill_id == "weather_forecast"
        assert local.model_version is None
        assert local.fallback_reason is None


def test_before_a_model_is_served_nothing_is_asked(layer: DiscoveryLayer, ready: Service) -> None:
    layer.search("will it rain")
    assert ready.asked == []


def test_degraded_skills_are_demoted_not_hidden(ready: Service, sent: Sent, embedder: Breakable) -> None:
    put_weights(ready, skills={"weather_forecast": {"status": "degraded", "rollout_fraction": 0.0}})
    with opened(ready, sent, embedder) as layer:
        found = layer.search("will it rain", k=4, session_id="s")
    assert found.candidates[-1].skill_id == "weather_forecast"


def test_exploration_is_marked_and_logged(ready: Service, sent: Sent, embedder: Breakable) -> None:
    put_weights(ready, explore={"slot": False, "shuffle_fraction": 0.5})
    with opened(ready, sent, embedder) as layer:
        for _ in range(60):
            with layer.select("will it rain"):
                pass
        assert not any(layer.search("will it rain").randomized for _ in range(30))
    events = sent.selections()
    shuffled = [event for event in events if event.randomized]
    assert 15 <= len(shuffled) <= 45
    assert all(event.candidates[0].propensity == 0.2 for event in shuffled)
    assert all(c.propensity is None for event in events if not event.randomized for c in event.candidates)


def test_no_match_below_the_calibrated_threshold(ready: Service, sent: Sent, embedder: Breakable) -> None:
    put_weights(ready, no_match_threshold=0.3)
    with opened(ready, sent, embedder) as layer:
        assert layer.search("qwertz uiop asdf").no_match
        assert not layer.search("list hotels in a city for my stay").no_match
        assert not layer.search("money_transfer").no_match
        with layer.select("qwertz uiop asdf"):
            pass
    assert sent.selections()[0].no_match is True


def test_the_project_is_named_in_every_request(ready: Service, sent: Sent, embedder: Breakable) -> None:
    with opened(ready, sent, embedder, project="shop", api_key="k1"):
        pass
    assert ready.headers
    assert all(h["X-Pickwise-Project"] == "shop" and h["Authorization"] == "Bearer k1" for h in ready.headers)


def test_a_restart_without_the_service_uses_the_copies_on_disk(
    ready: Service, sent: Sent, embedder: Breakable, tmp_path: Any
) -> None:
    with opened(ready, sent, embedder, cache_dir=tmp_path):
        pass
    ready.status = 503
    with opened(ready, sent, embedder, cache_dir=tmp_path) as layer:
        assert layer.search("will it rain").candidates[0].skill_id == "weather_forecast"


def test_what_was_asked_before_is_recalled(ready: Service, sent: Sent, embedder: Breakable, tmp_path: Path) -> None:
    slang = "the wotsit is on the blink"
    with opened(ready, sent, embedder) as layer:
        before = layer.search(slang)
        assert before.candidates[0].skill_id != "money_transfer"
        # Thirty times it was the money transfer that helped.
        profile = embedder.embed([slang])
        recall = Recall("p", "w1", embedder.version, ["money_transfer"], [""], np.array([30.0]), profile)
        artefacts = Artefacts(tmp_path)
        ready.documents[ARTEFACT_PATH] = artefacts.read("p", artefacts.keep(recall), gzipped=False)
        layer.refresh()
        found = layer.search(slang)
        assert (found.candidates[0].skill_id, found.candidates[0].source) == ("money_transfer", "usage")
        assert {c.source for c in found.candidates[1:]} == {"hybrid"}
        assert [c.skill_id for c in layer.search(slang, learned=False).candidates] == [
            c.skill_id for c in before.candidates
        ]
        embedder.down = True  # no vector, no history
        assert {c.source for c in layer.search(slang).candidates} == {"bm25"}
