"""The weights client: 304, the last good document after any failure, the copy on disk."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import httpx
import pytest

from discovery.weights import WEIGHTS_PATH, SkillWeights, WeightsClient, decode_weights
from tests.discovery.service import Service

DOCUMENT: dict[str, Any] = {
    "version": "w1",
    "created_at": "2026-01-01T00:00:00Z",
    "fusion": {"semantic": 1, "heat": 0.15, "success": 0.1, "alpha": {"latin": 0.3}},
    "no_match_threshold": None,
    "explore": {"slot": True, "shuffle_fraction": 0.05},
    "skills": {"a": {"heat": 0.7, "success": 0.9, "success_logit": 1.0, "status": "degraded", "rollout_fraction": 0.1}},
    "model": {"version": "m1", "features": ["bm25"], "sha256": "00"},
}


@pytest.fixture
def client(server: Service) -> WeightsClient:
    server.documents[WEIGHTS_PATH] = DOCUMENT
    return WeightsClient(httpx.Client(base_url=server.url, timeout=2))


def test_a_document_is_taken_once_and_then_not_modified(server: Service, client: WeightsClient) -> None:
    assert client.refresh()
    assert client.value is not None
    assert client.value.version == "w1"
    assert client.value.of("a").rollout_fraction == 0.1
    assert client.value.of("never used") == SkillWeights()
    assert not client.refresh()
    assert [status for _, status in server.log] == [200, 304]


def test_a_new_version_replaces_the_old(server: Service, client: WeightsClient) -> None:
    client.refresh()
    server.documents[WEIGHTS_PATH] = DOCUMENT | {"version": "w2"}
    assert client.refresh()
    assert client.value is not None
    assert client.value.version == "w2"


@pytest.mark.parametrize(
    "broken", [b"no json", b"[]", b'{"skills": {}}', b'{"version": "w3", "skills": {"a": {"heat": "hot"}}}']
)
def test_a_bad_document_keeps_the_last_good_one(server: Service, client: WeightsClient, broken: bytes) -> None:
    client.refresh()
    server.documents[WEIGHTS_PATH] = broken
    assert not client.refresh()
    assert client.error is not None
    assert client.value is not None
    assert client.value.version == "w1"
    server.documents[WEIGHTS_PATH] = DOCUMENT | {"version": "w4"}
    assert client.refresh()
    assert client.error is None


def test_a_service_that_fails_or_is_gone_keeps_the_last_good_one(server: Service, client: WeightsClient) -> None:
    client.refresh()
    server.status = 503
    assert not client.refresh()
    assert "503" in (client.error or "")
    gone = WeightsClient(httpx.Client(base_url="http://127.0.0.1:9", timeout=1))
    assert not gone.refresh()
    assert gone.value is None
    assert gone.error is not None
    assert client.value is not None


def test_the_copy_on_disk_outlives_the_process(server: Service, tmp_path: Path) -> None:
    server.documents[WEIGHTS_PATH] = DOCUMENT
    kept = tmp_path / "deep" / "weights.json"
    WeightsClient(httpx.Client(base_url=server.url), kept).refresh()
    restarted = WeightsClient(httpx.Client(base_url="http://127.0.0.1:9", timeout=1), kept)
    restarted.refresh()
    assert restarted.value is not None
    assert restarted.value.version == "w1"


def test_a_broken_copy_on_disk_is_no_obstacle(server: Service, tmp_path: Path) -> None:
    server.documents[WEIGHTS_PATH] = DOCUMENT
    kept = tmp_path / "weights.json"
    kept.write_bytes(b"{half")
    client = WeightsClient(httpx.Client(base_url=server.url), kept)
    assert client.value is None
    assert client.refresh()


def test_nulls_mean_not_known() -> None:
    weights = decode_weights({"version": "w", "skills": {"a": {"heat": None, "status": None}}, "model": None})
    assert weights.of("a").heat == 0.5
    assert weights.model is None


def test_success_gain_is_the_distance_to_the_domain() -> None:
    # p̂ = 0.8, logit p̂ − logit p_d = ln(16) → p_d = 0.2
    assert SkillWeights(success=0.8, success_logit=math.log(16)).success_gain == pytest.approx(0.6)
    assert SkillWeights(success=0.8, success_logit=0.0).success_gain == pytest.approx(0.0)
    assert SkillWeights().success_gain == 0.0
    assert math.isfinite(SkillWeights(success=1.0, success_logit=2.0).success_gain)
