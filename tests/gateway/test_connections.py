"""Connections over which nothing useful comes are ended; those that wait for an answer or a next request are not."""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from gateway import connections
from gateway.connections import BoundedConnection

LIMIT_S = 0.4
#: A connection that should have been ended by then, but for a busy machine.
ENDED_S = 10.0
GET = b"GET /now HTTP/1.1\r\nHost: x\r\n\r\n"


async def now(_: Request) -> PlainTextResponse:
    return PlainTextResponse("now")


async def slow(_: Request) -> PlainTextResponse:
    await asyncio.sleep(3 * LIMIT_S)
    return PlainTextResponse("late")


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr(connections, "REQUEST_S", LIMIT_S)
    app = Starlette(routes=[Route("/now", now, methods=["GET", "POST"]), Route("/slow", slow)])
    server = uvicorn.Server(uvicorn.Config(app, http=BoundedConnection, lifespan="off", timeout_keep_alive=75))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            server.should_exit = True
            thread.join(20)
    assert not thread.is_alive()


def connect(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=ENDED_S)


def is_ended(connection: socket.socket) -> bool:
    """Whether the other side has closed it by the time-out of the socket; what it said before is read over."""
    with suppress(ConnectionResetError):
        try:
            while connection.recv(4096):
                pass
        except TimeoutError:
            return False
    return True


def trickle(connection: socket.socket, pieces: bytes) -> float:
    """Send byte for byte until the other side has enough; how long it looked on, in seconds."""
    started = time.monotonic()
    with suppress(ConnectionError):
        while time.monotonic() < started + ENDED_S:
            for piece in pieces:
                connection.sendall(bytes([piece]))
                time.sleep(LIMIT_S / 10)
    return time.monotonic() - started


@pytest.mark.parametrize("beginning", [b"", b"GET /now HTTP/1.1\r\nHost: x\r\n"], ids=["silent", "half a head"])
def test_a_request_that_does_not_come_ends_its_connection(address: tuple[str, int], beginning: bytes) -> None:
    with connect(address) as connection:
        connection.sendall(beginning)
        assert is_ended(connection)


@pytest.mark.parametrize(
    ("beginning", "pieces"),
    [
        (b"GET /now HTTP/1.1\r\n", b"X-Slow: a\r\n"),
        (b"POST /now HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n", b"x"),
        (GET, b"\r\n"),
    ],
    ids=["head", "body that nobody reads", "nothing after a request"],
)
def test_a_trickle_ends_its_connection(address: tuple[str, int], beginning: bytes, pieces: bytes) -> None:
    with connect(address) as connection:
        connection.sendall(beginning)
        assert trickle(connection, pieces) < ENDED_S


def test_who_waits_for_an_answer_gets_it(address: tuple[str, int]) -> None:
    with connect(address) as connection:
        connection.sendall(GET.replace(b"/now", b"/slow"))
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_a_connection_stays_between_requests(address: tuple[str, int]) -> None:
    with connect(address) as connection:
        for _ in range(3):
            connection.sendall(GET)
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
            time.sleep(2 * LIMIT_S)


def test_one_too_many_is_closed_until_there_is_room(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedConnection, "most", 3)
    with ExitStack() as stack:
        held = [stack.enter_context(connect(address)) for _ in range(3)]
        for connection in held:  # each is known to the server when it has answered
            connection.sendall(GET)
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        with connect(address) as one_more:
            assert is_ended(one_more)
        held[0].sendall(GET)
        assert held[0].recv(4096).startswith(b"HTTP/1.1 200 ")
        held[1].close()
        deadline = time.monotonic() + ENDED_S
        while True:
            with connect(address) as late, suppress(ConnectionError):
                late.sendall(GET)
                if late.recv(4096).startswith(b"HTTP/1.1 200 "):
                    break
            assert time.monotonic() < deadline


@pytest.mark.parametrize(
    ("soft", "hard", "most"), [(256, 1024, 768), (256, 256, 192), (1024, 8_192, 6_144), (1024, 99_999, 49_152)]
)
def test_connections_leave_files_for_the_rest(soft: int, hard: int, most: int) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < hard:
        pytest.skip(f"needs {hard} files")
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        "from gateway.connections import raise_file_limit\n"
        "print(raise_file_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(most), str(min(hard, 65_536))]
