"""The read API: documents of the contract, clear errors, and nothing there is no error."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from analytics.metrics.declarations import METRICS


def selection(event_id: str, time: str, picks: list[str], **fields: Any) -> dict[str, Any]:
    candidates = [{"skill_id": "mail", "score": 0.9}, {"skill_id": "calendar", "score": 0.4}]
    return {
        "type": "selection",
        "event_id": event_id,
        "time": time,
        "query": "when is it",
        "ranked": True,
        "candidates": candidates,
        "picks": picks,
        **fields,
    }


@pytest.fixture
def loaded(client: TestClient) -> TestClient:
    events = [
        selection("a", "2026-01-01T10:00:00Z", ["mail"], model="m1"),
        selection("b", "2026-01-02T10:00:00Z", ["calendar"], model="m2"),
        {
            "type": "call",
            "event_id": "c",
            "call_id": "c",
            "selection_id": "b",
            "time": "2026-01-02T10:00:01Z",
            "skill_id": "calendar",
            "ok": False,
            "error_kind": "timeout",
            "latency_ms": 12.5,
        },
    ]
    assert client.post("/v1/events", json=events).json() == {"accepted": 3, "rejected": []}
    client.post("/v1/refresh")
    return client


@pytest.mark.parametrize("name", [metric.name for metric in METRICS])
def test_nothing_there_is_one_row_without_a_value(client: TestClient, name: str) -> None:
    document = client.get(f"/v1/metrics/{name}").json()
    (row,) = document["rows"]
    assert row["n"] == 0
    assert row.get("value", row.get("p50")) is None


def test_the_metric_document(loaded: TestClient) -> None:
    document = loaded.get("/v1/metrics/top1_acceptance_rate").json()
    assert {name: document[name] for name in ("metric", "unit", "from", "to", "by")} == {
        "metric": "top1_acceptance_rate",
        "unit": "fraction",
        "from": None,
        "to": None,
        "by": [],
    }
    (row,) = document["rows"]
    assert (row["value"], row["n"]) == (0.5, 2)
    assert 0 < row["low"] < 0.5 < row["high"] < 1


def test_windows_are_half_open(loaded: TestClient) -> None:
    def n(**window: str) -> int:
        found: int = loaded.get("/v1/metrics/acceptance_rate", params=window).json()["rows"][0]["n"]
        return found

    assert n(**{"from": "2026-01-01T10:00:00Z", "to": "2026-01-02T10:00:00Z"}) == 1
    assert n(**{"from": "2026-01-02T10:00:00Z"}) == 1
    assert n(**{"to": "2026-01-01T10:00:00Z"}) == 0
    assert n(**{"from": "1767348000000000000"}) == 1  # Unix nanoseconds of 2026-01-02T10:00:00Z


def test_groupings_repeated_or_with_commas(loaded: TestClient) -> None:
    rows = loaded.get("/v1/metrics/top1_acceptance_rate?by=model,day").json()["rows"]
    assert [(row["model"], row["value"]) for row in rows] == [("m1", 1.0), ("m2", 0.0)]
    assert loaded.get("/v1/metrics/top1_acceptance_rate?by=model&by=day").json()["rows"] == rows


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/v1/metrics/nonsense", 404, "acceptance_rate"),
        ("/v1/metrics/acceptance_rate?by=colour", 400, "colour"),
        ("/v1/metrics/acceptance_rate?from=yesterday", 400, "from"),
        ("/v1/report?by=colour", 400, "colour"),
        ("/v1/report?format=pdf", 400, "format: expected 'json', 'text', 'markdown' or 'html', got 'pdf'"),
        ("/v1/report?format=", 400, "format: expected 'json'"),
        ("/v1/skills/nobody", 404, "nobody"),
        ("/v1/selections/none", 404, "none"),
    ],
)
def test_errors_name_what_was_expected(loaded: TestClient, path: str, status: int, says: str) -> None:
    answer = loaded.get(path)
    assert answer.status_code == status
    assert says in answer.json()["detail"]


def test_verdicts_of_judges_count_where_they_are_asked_for(loaded: TestClient) -> None:
    verdict = {"type": "feedback", "event_id": "f", "selection_id": "a", "kind": "wrong_skill", "source": "judge"}
    assert loaded.post("/v1/events", json=[verdict]).json()["accepted"] == 1
    loaded.post("/v1/refresh")
    told = {
        asked: loaded.get(f"/v1/metrics/corrected_rate{asked}").json()["rows"][0]["value"]
        for asked in ("", "?judge=false", "?judge=true")
    }
    assert told == {"": 0, "?judge=false": 0, "?judge=true": 0.5}


def test_latencies_have_the_stage_call(loaded: TestClient) -> None:
    rows = loaded.get("/v1/metrics/stage_latency_ms").json()["rows"]
    (row,) = [row for row in rows if row["stage"] == "call"]
    assert (row["p50"], row["p95"], row["p99"], row["n"]) == (12.5, 12.5, 12.5, 1)


def test_a_selection_is_replayed_with_its_call(loaded: TestClient) -> None:
    found = loaded.get("/v1/selections/b").json()
    assert found["query"] == "when is it"
    assert [(c["skill_id"], c["rank"], c["picked"], c["skipped"]) for c in found["candidates"]] == [
        ("mail", 1, False, True),
        ("calendar", 2, True, False),
    ]
    (call,) = found["calls"]
    assert (call["skill_id"], call["ok"], call["error_kind"]) == ("calendar", False, "timeout")


def test_a_skill_has_a_portrait(loaded: TestClient) -> None:
    found = loaded.get("/v1/skills/calendar").json()
    assert (found["impressions"], found["picks"], found["failed"]) == (2, 1, 1)


def test_projects_do_not_mix(loaded: TestClient) -> None:
    for request in ("/v1/metrics/acceptance_rate?project=other", "/v1/metrics/acceptance_rate"):
        headers = {} if "project" in request else {"X-Pickwise-Project": "other"}
        assert loaded.get(request, headers=headers).json()["rows"][0]["n"] == 0


def test_report_and_alerts_answer_on_an_empty_folder(client: TestClient) -> None:
    assert len(client.get("/v1/report").json()["decisions"]) == 4
    assert client.get("/v1/alerts").json() == {"alerts": []}
    assert client.get("/docs").status_code == 200
    assert "/v1/metrics/{name}" in client.get("/openapi.json").json()["paths"]


@pytest.mark.parametrize(
    ("form", "media_type", "says"),
    [
        ("html", "text/html; charset=utf-8", "<!doctype html>"),
        ("markdown", "text/markdown; charset=utf-8", "# Project `default`"),
        ("text", "text/plain; charset=utf-8", "Project default"),
    ],
)
def test_the_report_in_other_forms(loaded: TestClient, form: str, media_type: str, says: str) -> None:
    answer = loaded.get("/v1/report", params={"format": form, "by": "model"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, media_type)
    assert answer.text.startswith(says)
    assert "top1_acceptance_rate" in answer.text
    assert "m2" in answer.text
    assert loaded.get("/v1/report?format=json").json() == loaded.get("/v1/report").json()


@pytest.mark.parametrize("path", ["/v1/metrics/acceptance_rate", "/v1/report", "/v1/skills/mail"])
@pytest.mark.parametrize("name", ["from", "to"])
@pytest.mark.parametrize("value", ["", "²", "٣", "9" * 22, "9" * 5_000, "yesterday", "-1", "2026-01-01"])
def test_a_time_that_is_none_is_named(client: TestClient, path: str, name: str, value: str) -> None:
    answer = client.get(path, params={name: value})
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith(f"{name}: expected")


@pytest.mark.parametrize("path", ["/v1/metrics/acceptance_rate", "/v1/report", "/v1/skills/mail"])
def test_a_window_that_ends_before_it_begins_is_named(client: TestClient, path: str) -> None:
    answer = client.get(path, params={"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"})
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("to: expected a time after from")
    same = {"from": "2026-01-02T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
    assert client.get(path, params=same).status_code in {200, 404}


@pytest.mark.parametrize("path", ["/v1/selections", "/v1/selections?limit=1", "/v1/weights/", "/v1/none"])
def test_a_path_that_leads_nowhere_is_named(client: TestClient, path: str) -> None:
    answer = client.get(path, follow_redirects=False)
    assert answer.status_code == 404
    assert answer.json()["detail"] == f"nothing is at {path.partition('?')[0]}; /docs lists what there is"


def test_a_zone_whose_plus_became_a_space(loaded: TestClient) -> None:
    answer = loaded.get("/v1/metrics/acceptance_rate?from=2026-01-02T02:00:00+02:00")
    assert answer.json()["from"] == "2026-01-02T00:00:00Z"
    assert answer.json()["rows"][0]["n"] == 1
