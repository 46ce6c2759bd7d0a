"""What an operator asks of a running service over HTTP, and who may."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from collector.control import Control
from collector.keys import KeyStore
from collector.lake import Lake
from collector.lock import FolderHeld
from collector.operations import ReplayRequest
from collector.service import Collector
from gateway import operate
from gateway.app import create_app
from gateway.intake import ServiceRefused
from pickwise.settings import Settings
from tests.collector.disk import holding
from tests.collector.spans_of import body, chat_span, tool_span

SESSION = "session-of-ada"
JSON = {"content-type": "application/json"}


def post(client: TestClient, project: str = "default") -> None:
    headers = JSON | {"X-Pickwise-Project": project}
    content = body(chat_span(1, "where is it", SESSION), tool_span(2))
    assert client.post("/v1/traces", content=content, headers=headers).status_code == 200
    assert client.post("/v1/refresh").status_code == 200


def test_forgetting_answers_when_it_is_done(client: TestClient, settings: Settings) -> None:
    post(client)
    post(client, "other")
    answer = client.post("/v1/forget", json={"session_id": SESSION})
    assert answer.status_code == 200
    assert answer.json() == {
        "rows": {"selections": 1, "calls": 2, "feedback": 0, "routes": 0},
        "archived_items": 2,
        "dead_letters": 0,
        "damaged_segments": 0,
    }
    assert Lake(settings.data_dir).read("selections")["project"].to_list() == ["other"]
    client.post("/v1/forget", json={"session_id": SESSION}, headers={"X-Pickwise-Project": "other"})
    assert holding(settings.data_dir, SESSION) == {}


def test_replay_tells_what_it_did(client: TestClient) -> None:
    post(client)
    answer = client.post("/v1/replay")
    assert answer.status_code == 200
    report = answer.json()
    assert (report["requests"], report["items"], report["tables"], report["dry_run"]) == (1, 2, {}, False)
    window = {"from": "2020-01-01T00:00:00Z", "to": "2020-01-02T00:00:00Z", "dry_run": True}
    report = client.post("/v1/replay", json=window).json()
    assert (report["requests"], report["dry_run"]) == (0, True)


def test_retention_without_an_age_removes_nothing(client: TestClient) -> None:
    post(client)
    assert client.post("/v1/retention", json={"dry_run": True}).json()["rows"] == {}
    assert client.post("/v1/retention").status_code == 200


@pytest.mark.parametrize(
    ("path", "content", "words"),
    [
        ("/v1/forget", "", "required field `session_id`"),
        ("/v1/forget", '{"session_id": ""}', "session_id: expected `str` of length >= 1"),
        ("/v1/forget", '{"session_id": 5}', "session_id: expected `str`, got `int`"),
        ("/v1/forget", '{"session_id": "s", "all": true}', "unknown field `all`"),
        ("/v1/forget", "[]", "xpected `object`"),
        ("/v1/replay", "{", "expected a JSON object"),
        ("/v1/replay", '{"from": "yesterday"}', "from: expected RFC 3339"),
        ("/v1/replay", '{"since": 1}', "unknown field `since`"),
        (
            "/v1/replay",
            '{"from": "2026-02-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"}',
            "to: expected a time after from",
        ),
        ("/v1/retention", '{"dry_run": "yes"}', "dry_run: expected `bool`"),
        ("/v1/forget?session_id=s", "", "session_id: expected in the JSON body"),
        ("/v1/replay?dry_run=true", "", "dry_run: expected in the JSON body"),
        ("/v1/retention?project=p&dry_run=true", "{}", "dry_run: expected in the JSON body"),
    ],
)
def test_a_wrong_request_is_told_what_was_expected(client: TestClient, path: str, content: str, words: str) -> None:
    answer = client.post(path, content=content, headers=JSON)
    assert answer.status_code == 400
    assert words in answer.json()["message"]


def test_a_body_without_an_end_is_refused(client: TestClient) -> None:
    answer = client.post("/v1/forget", content=b"{" + b" " * 100_000, headers=JSON)
    assert answer.status_code == 413


@pytest.mark.parametrize("path", ["/v1/forget", "/v1/replay", "/v1/retention"])
def test_only_a_key_with_the_role_admin_of_the_very_project_may(settings: Settings, path: str) -> None:
    collector = Collector(settings)
    collector.start()
    control = Control(settings.data_dir)
    try:
        store = KeyStore(control)
        keys = {role: store.create("mine", [role])[1] for role in ("ingest", "read", "admin")}
        collector.access.ring.reload()

        def ask(key: str | None, **more: str) -> int:
            headers = ({"Authorization": f"Bearer {key}"} if key else {}) | more
            content: Any = {"session_id": "s"} if path == "/v1/forget" else {}
            with TestClient(create_app(settings, collector)) as client:
                return client.post(path, json=content, headers=headers).status_code

        assert ask(None) == 401
        assert (ask(keys["ingest"]), ask(keys["read"])) == (403, 403)
        assert ask(keys["admin"], **{"X-Pickwise-Project": "theirs"}) == 403
        assert ask(keys["admin"]) == 200
    finally:
        control.close()
        collector.stop()


def test_by_ourselves_where_no_service_runs(settings: Settings) -> None:
    collector = Collector(settings)
    collector.start()
    _, future = collector.submit_traces(body(chat_span(1, "where is it", SESSION)), "json", "p")
    assert future is not None
    future.result(10)
    with pytest.raises(FolderHeld, match="in use by process"):
        operate.replay(settings, "p", ReplayRequest(project="p"))
    collector.stop()
    assert operate.replay(settings, "p", ReplayRequest(project="p"))["requests"] == 1
    assert operate.retain(settings, "p", dry_run=True)["rows"] == {}
    assert operate.forget(settings, "p", SESSION)["rows"]["selections"] == 1
    assert holding(settings.data_dir, SESSION) == {}
    with pytest.raises(ServiceRefused, match="project: expected"):
        operate.forget(settings, "../x", SESSION)
