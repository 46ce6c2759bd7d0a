"""The ranker's process behind the one HTTP port: the same answers, and none is lost while it restarts."""

from __future__ import annotations

import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from starlette.testclient import TestClient

from collector.service import Collector
from gateway.app import create_app
from gateway.forward import MAX_RECALLS
from gateway.sockets import SocketTaken, listening_at
from pickwise.cli import app
from pickwise.cli.options import UserError
from pickwise.settings import Settings, load_settings
from ranker.weights import refresh

SKILLS = [{"skill_id": name, "description": f"Does {name}.", "domain": "d"} for name in ("mail", "calendar")]
CANDIDATES = [{"skill_id": "calendar", "dense": 0.4}, {"skill_id": "mail", "dense": 0.7}]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Settings]:
    """A project with weights, and a short path for the socket."""
    with tempfile.TemporaryDirectory() as short:
        settings = load_settings(data_dir=tmp_path / "data", embedder="words", ranker_socket=Path(short) / "r")
        yield settings


@pytest.fixture
def client(folder: Settings) -> Iterator[TestClient]:
    collector = Collector(folder)
    collector.start()
    try:
        with TestClient(create_app(folder, collector)) as client:
            client.put("/v1/registry", json=SKILLS).raise_for_status()
            client.post("/v1/refresh").raise_for_status()
            refresh(folder.data_dir, folder, "default")
            yield client
    finally:
        collector.stop()


@pytest.fixture
def listener(folder: Settings) -> Iterator[socket.socket]:
    with listening_at(folder.ranker_socket) as (_, listener):
        yield listener


@pytest.fixture
def start(folder: Settings, listener: socket.socket) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts the ranker's process at the socket, as ``serve`` does."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        number = listener.fileno()
        command = [sys.executable, "-m", "pickwise.cli", "ranker", "--data-dir", str(folder.data_dir)]
        started.append(subprocess.Popen([*command, "--listener", str(number)], pass_fds=[number]))
        return started[-1]

    yield start
    for process in started:
        process.terminate()
    for process in started:
        process.wait(20)


def patiently(ask: Callable[[], Any]) -> Any:
    """The first answer that is none of a service that is still starting."""
    deadline = time.monotonic() + 90
    while (answer := ask()).status_code == 503:
        assert time.monotonic() < deadline
    return answer


def test_answers_come_from_the_process(client: TestClient, start: Callable[[], subprocess.Popen[bytes]]) -> None:
    start()
    ranked = patiently(lambda: client.post("/v1/rank", json={"query": "write", "candidates": CANDIDATES}))
    assert ranked.status_code == 200
    assert [item["skill_id"] for item in ranked.json()["candidates"]] == ["mail", "calendar"]
    weights = client.get("/v1/weights", headers={"Accept-Encoding": "gzip"})
    etag = weights.headers["etag"]
    assert ranked.json()["weights_version"] == weights.json()["version"] == etag.strip('"')
    unchanged = client.get("/v1/weights", headers={"If-None-Match": etag})
    assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", etag)
    assert client.get("/v1/weights", params={"version": "feed"}).status_code == 404
    assert client.get("/v1/weights", params={"project": "other"}).json()["project"] == "other"
    other = client.post("/v1/rank", json={"query": "", "candidates": []}, headers={"X-Pickwise-Project": "other"})
    assert other.json()["weights_version"] != etag.strip('"')
    refused = client.post("/v1/recall", json={"query": "q", "k": 0})
    assert (refused.status_code, refused.json()["detail"]) == (422, "k: expected 1 to 200, got 0")
    assert patiently(lambda: client.post("/v1/recall", json={"query": "q"})).json()["skills"] == []
    assert client.get("/v1/recall/artefact").status_code == 404
    assert client.post("/v1/rank", content=b" " * (1024 * 1024 + 1)).status_code == 413
    assert client.get("/v1/rank").status_code == 405
    nowhere = client.post("/v1/rank", json={"query": "", "candidates": []}, headers={"X-Pickwise-Project": "a b"})
    assert (nowhere.status_code, list(nowhere.json())) == (400, ["detail"])


def test_the_process_says_what_it_does_not_answer(
    client: TestClient, start: Callable[[], subprocess.Popen[bytes]], folder: Settings
) -> None:
    start()
    patiently(lambda: client.post("/v1/rank", json={"query": "write", "candidates": CANDIDATES}))
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(folder.ranker_socket)), base_url="http://ranker") as inside:
        assert inside.get("/v1/rank").status_code == 404
        assert inside.get("/v1/weights", headers={"X-Pickwise-Project": "a b"}).status_code == 400
        parts = iter([b'{"query": "write", ', b'"candidates": []}'])
        assert inside.post("/v1/rank", content=parts).json()["candidates"] == []


def test_a_request_waits_while_the_process_restarts(
    client: TestClient, start: Callable[[], subprocess.Popen[bytes]]
) -> None:
    asked = {"query": "write", "candidates": CANDIDATES}
    first = start()
    assert patiently(lambda: client.post("/v1/rank", json=asked)).status_code == 200
    first.kill()
    first.wait()
    answers: list[int] = []
    waiting = threading.Thread(
        target=lambda: answers.append(patiently(lambda: client.post("/v1/rank", json=asked)).status_code)
    )
    waiting.start()
    time.sleep(0.2)
    assert not answers
    assert client.get("/v1/weights").status_code == 200  # from the disk
    start()
    waiting.join(90)
    assert answers == [200]


def test_without_the_process_weights_are_served_and_the_rest_is_told_when_to_come_again(client: TestClient) -> None:
    assert set(client.get("/v1/weights").json()["skills"]) == {"mail", "calendar"}
    for path in ("rank", "recall"):
        answer = client.post(f"/v1/{path}", json={"query": "q", "candidates": []})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        assert answer.json()["detail"].startswith("the ranker does not answer")


def test_the_socket_is_for_this_user_alone_and_goes_with_its_block() -> None:
    with listening_at(None) as (path, _):
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        with pytest.raises(SocketTaken, match="another process listens"), listening_at(path):
            pass
    assert not path.parent.exists()


def test_a_socket_that_was_left_behind_is_taken_over(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as short:
        left = socket.socket(socket.AF_UNIX)
        left.bind(f"{short}/r")
        left.close()
        with listening_at(Path(short) / "r") as (path, _), socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(path))
    with pytest.raises(OSError, match="too long"), listening_at(tmp_path / ("x" * 200)):
        pass


def test_the_command_says_which_socket_it_lacks_or_cannot_have(tmp_path: Path) -> None:
    for given, says in (([], "expected a path"), (["--ranker-socket", str(tmp_path / ("x" * 200))], "under 100")):
        with pytest.raises(UserError, match=says):
            app(["ranker", "--data-dir", str(tmp_path), *given], standalone_mode=False)


class _Slow(socketserver.StreamRequestHandler):
    """Answers as the ranker's process does while it loads: ranks at once, recalls when they are let go."""

    let_go = threading.Event()
    waiting: ClassVar[set[int]] = set()
    most = 0

    def handle(self) -> None:
        while request := self.rfile.readline():
            length = 0
            while line := self.rfile.readline().strip():
                length = int(line.removeprefix(b"content-length: ")) if line.startswith(b"content-length") else length
            self.rfile.read(length)
            if b"/recall" in request:
                self.waiting.add(id(self))
                _Slow.most = max(_Slow.most, len(self.waiting))
                self.let_go.wait(30)
                self.waiting.discard(id(self))
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")


def test_recalls_that_wait_leave_ranks_their_place(client: TestClient, listener: socket.socket) -> None:
    server = socketserver.ThreadingUnixStreamServer("unused", _Slow, bind_and_activate=False)
    server.socket.close()
    server.socket, server.daemon_threads = listener.dup(), True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    answers: list[int] = []
    recalls = [
        threading.Thread(target=lambda: answers.append(client.post("/v1/recall", json={"query": "q"}).status_code))
        for _ in range(8)
    ]
    for recall in recalls:
        recall.start()
    try:
        deadline = time.monotonic() + 20
        while len(_Slow.waiting) < MAX_RECALLS and time.monotonic() < deadline:
            time.sleep(0.01)
        assert client.post("/v1/rank", json={"query": "q", "candidates": []}).status_code == 200
        assert not answers
    finally:
        _Slow.let_go.set()
        for recall in recalls:
            recall.join(30)
        server.shutdown()
        server.socket.close()
    assert answers == [200] * 8
    assert _Slow.most == MAX_RECALLS
