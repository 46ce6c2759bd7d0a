from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from collector.access import Access
from collector.callers import guard
from collector.telemetry import Telemetry
from ranker.answering import RankerAnswers
from ranker.http import add_ranker
from tests.ranker.conftest import SKILL_IDS, SLANG, Project


@pytest.fixture
def client(trained: Project) -> Iterator[TestClient]:
    app = FastAPI()
    guard(app, Access(False, Telemetry()))
    add_ranker(app, RankerAnswers(trained.settings))
    with TestClient(app) as client:
        yield client


def test_weights_with_etag(client: TestClient) -> None:
    answer = client.get("/v1/weights")
    assert answer.status_code == 200
    document, etag = answer.json(), answer.headers["etag"]
    assert etag == f'"{document["version"]}"'
    assert "max-age" in answer.headers["cache-control"]
    for known in (etag, f'W/{etag}, "other"', "*"):
        again = client.get("/v1/weights", headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert client.get("/v1/weights", headers={"If-None-Match": '"other"'}).status_code == 200


def test_one_version_never_changes(client: TestClient) -> None:
    version = client.get("/v1/weights").json()["version"]
    answer = client.get("/v1/weights", params={"version": version})
    assert answer.json()["version"] == version
    assert "immutable" in answer.headers["cache-control"]
    missing = client.get("/v1/weights", params={"version": "feed"})
    assert missing.status_code == 404
    assert missing.json()["detail"].startswith("version: ")
    none = client.get("/v1/weights", params={"version": ""})  # an empty parameter names none
    assert "immutable" not in none.headers["cache-control"]


def test_project_by_query_or_header(client: TestClient) -> None:
    assert client.get("/v1/weights", params={"project": "other"}).json()["skills"] == {}
    answer = client.get("/v1/weights", headers={"X-Pickwise-Project": "other"})
    assert answer.json()["project"] == "other"
    assert len(client.get("/v1/weights").json()["skills"]) == len(SKILL_IDS)


def test_rank(client: TestClient, trained: Project) -> None:
    candidates = [{"skill_id": skill_id, "dense": 0.5, "note": "kept"} for skill_id in SKILL_IDS[:3]]
    answer = client.post("/v1/rank", json={"query": "weather", "candidates": candidates})
    assert answer.status_code == 200
    assert answer.json()["model_version"] == trained.result["version"]
    assert {c["skill_id"] for c in answer.json()["candidates"]} == set(SKILL_IDS[:3])
    assert {"score", "contributions", "propensity", "dense", "note"} <= set(answer.json()["candidates"][0])


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (b"{", 400, "body"),
        (b'"text"', 422, "object"),
        (b'{"query":"q"}', 422, "candidates"),
        (
            b'{"query":"q","candidates":[{"skill_id":"a","dense":1e999}]}',
            422,
            "candidates[0].dense: number out of range",
        ),
        (b'{"query":"q","candidates":[],"else":1e999}', 400, "out of range"),
        (b'{"query":"\xff","candidates":[]}', 400, "body"),
        (b" " * (1024 * 1024 + 1), 413, "body"),
    ],
)
def test_bad_input_is_named(client: TestClient, body: bytes, status: int, word: str) -> None:
    answer = client.post("/v1/rank", content=body)
    assert answer.status_code == status
    assert word in answer.json()["detail"]


@pytest.mark.parametrize("path", ["rank", "recall"])
def test_a_body_may_come_compressed(client: TestClient, path: str) -> None:
    plain = json.dumps({"query": "a room", "candidates": [{"skill_id": SKILL_IDS[0]}]}).encode()
    bodies = {"gzip": gzip.compress(plain), "deflate": zlib.compress(plain), "identity": plain}
    for coding, body in bodies.items():
        assert client.post(f"/v1/{path}", content=body, headers={"Content-Encoding": coding}).status_code == 200
    for coding, body, status in (
        ("br", plain, 415),
        ("gzip", plain, 400),
        ("gzip", gzip.compress(b" " * (1024 * 1024 + 1)), 413),
    ):
        answer = client.post(f"/v1/{path}", content=body, headers={"Content-Encoding": coding})
        assert (answer.status_code, "detail" in answer.json()) == (status, True)


@pytest.mark.parametrize("version", ["x" * 5_000, "../../etc/passwd", "a\0b", "²", "."])
def test_a_version_that_is_no_name_is_missing(client: TestClient, version: str) -> None:
    answer = client.get("/v1/weights", params={"version": version})
    assert answer.status_code == 404
    assert answer.json()["detail"].startswith("version: ")


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"query": "q", "candidates": ' + b"[" * 100_000, b"\xff", b""])
def test_a_body_that_is_no_json(client: TestClient, body: bytes) -> None:
    answer = client.post("/v1/rank", content=body)
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("body: expected JSON")


def test_weights_are_compressed_where_that_is_taken(client: TestClient) -> None:
    plain = client.get("/v1/weights", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    for taken in ("gzip", "br, GZIP;q=0.5", "*"):
        small = client.get("/v1/weights", headers={"Accept-Encoding": taken})
        assert small.headers["content-encoding"] == "gzip"
        assert int(small.headers["content-length"]) < len(plain.content)
        assert (small.content, small.headers["etag"]) == (plain.content, plain.headers["etag"])
    assert "Accept-Encoding" in small.headers["vary"]
    refused = client.get("/v1/weights", headers={"Accept-Encoding": "gzip;q=0, identity"})
    assert "content-encoding" not in refused.headers


def test_recall(client: TestClient) -> None:
    answer = client.post("/v1/recall", json={"query": f"please {SLANG[0]}", "k": 2})
    assert answer.status_code == 200
    assert [set(item) for item in answer.json()["skills"]] == [{"skill_id", "score", "support"}] * 2
    assert answer.json()["skills"][0]["skill_id"] == SKILL_IDS[0]
    refused = client.post("/v1/recall", json={"query": "q", "k": 0})
    assert (refused.status_code, refused.json()["detail"]) == (422, "k: expected 1 to 200, got 0")
    assert client.post("/v1/recall", content=b"{").status_code == 400


def test_the_artefact_with_etag_version_and_gzip(client: TestClient) -> None:
    answer = client.get("/v1/recall/artefact", headers={"Accept-Encoding": "identity"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/vnd.apache.arrow.file")
    etag, version = answer.headers["etag"], answer.headers["etag"].strip('"')
    assert answer.content.startswith(b"ARROW1")
    again = client.get("/v1/recall/artefact", headers={"If-None-Match": etag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    kept = client.get("/v1/recall/artefact", params={"version": version}, headers={"Accept-Encoding": "gzip"})
    assert (kept.content, kept.headers["content-encoding"]) == (answer.content, "gzip")
    assert "immutable" in kept.headers["cache-control"]
    missing = client.get("/v1/recall/artefact", params={"version": "feed"})
    assert (missing.status_code, missing.json()["detail"].split(":")[0]) == (404, "version")
    empty = client.get("/v1/recall/artefact", params={"project": "other"})
    assert (empty.status_code, "history" in empty.json()["detail"]) == (404, True)


def test_the_routes_are_described(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert "version" in [told["name"] for told in paths["/v1/weights"]["get"]["parameters"]]
    body = paths["/v1/recall"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["properties"]) == {"query", "k", "domain"}
    candidate = paths["/v1/rank"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert "dense" in candidate["candidates"]["items"]["properties"]
