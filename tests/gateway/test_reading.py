"""What a discovery layer reads of a folder, while no service holds it: only for who knows the key."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from collector.service import Collector
from gateway.reading import reading_service
from pickwise.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = Settings(data_dir=tmp_path, embedder="words")
    collector = Collector(settings)
    collector.start()
    collector.submit_events(b'{"type": "skill", "skill_id": "a"}', "ndjson", "shop")
    parsed, _ = collector.submit_events(b'{"type": "skill", "skill_id": "a", "name": "find"}', "ndjson", "shop")
    collector.submit_skills(parsed, "shop")
    collector.refresh()
    collector.stop()
    return settings


def test_registry_weights_and_ranks_are_served_as_by_the_service(settings: Settings) -> None:
    with reading_service(settings) as service:
        headers = {"Authorization": f"Bearer {service.api_key}", "X-Pickwise-Project": "shop"}
        with httpx.Client(base_url=service.url, headers=headers) as http:
            registry = http.get("/v1/registry").json()
            assert [skill["skill_id"] for skill in registry["skills"]] == ["a"]
            assert registry["registry_version"]
            assert http.get("/v1/registry", headers={"X-Pickwise-Project": "other"}).json()["skills"] == []
            assert http.get("/v1/weights").json()["project"] == "shop"
            ranked = http.post("/v1/rank", json={"query": "q", "candidates": [{"skill_id": "a"}]}).json()
            assert [candidate["skill_id"] for candidate in ranked["candidates"]] == ["a"]
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{service.url}/v1/registry")


def test_nobody_else_is_answered(settings: Settings) -> None:
    with reading_service(settings) as service:
        for key in (None, b"guess", b"Bearer guess", "Bearer \u00e9".encode()):
            headers = [] if key is None else [(b"Authorization", key)]
            for path in ("/v1/registry", "/v1/weights", "/docs"):
                assert httpx.get(f"{service.url}{path}", headers=headers).status_code == 401
