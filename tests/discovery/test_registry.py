"""The registry client: what is decoded, what is left out, what is kept."""

from __future__ import annotations

import httpx
import pytest

from discovery.registry import REGISTRY_PATH, RegistryClient, decode_registry
from tests.discovery.service import Service


def test_active_entries_of_a_version() -> None:
    registry = decode_registry(
        {"registry_version": "r1", "skills": [{"skill_id": "a"}, {"skill_id": "b", "is_active": False}]}
    )
    assert registry.version == "r1"
    assert [skill.skill_id for skill in registry.skills] == ["a"]


def test_a_bad_entry_does_not_take_the_others_down(caplog: pytest.LogCaptureFixture) -> None:
    registry = decode_registry({"skills": [{"name": "no id"}, {"skill_id": "a"}]})
    assert [skill.skill_id for skill in registry.skills] == ["a"]
    assert "skill_id" in caplog.text


@pytest.mark.parametrize("raw", [[], {}, {"skills": None}, "x"])
def test_an_answer_without_skills_is_refused(raw: object) -> None:
    with pytest.raises(ValueError, match="skills: expected a list"):
        decode_registry(raw)


def test_unchanged_registries_are_not_sent_again(server: Service) -> None:
    server.documents[REGISTRY_PATH] = {"registry_version": "r1", "skills": [{"skill_id": "a"}]}
    client = RegistryClient(httpx.Client(base_url=server.url))
    assert client.refresh()
    first = client.value
    assert not client.refresh()
    assert client.value is first
    assert [status for _, status in server.log] == [200, 304]
