"""What a discovery layer reads, from a data folder that no service needs to hold: registry, weights, ranks and
recall.

On a loopback port of its own, for as long as somebody in this process needs it, and for nobody else.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import uvicorn
from fastapi import FastAPI, Request, Response

from analytics.frames import active_entries
from analytics.tables import Tables
from collector.access import Access
from collector.callers import Reader, guard
from collector.telemetry import Telemetry
from pickwise.settings import Settings
from ranker.answering import RankerAnswers
from ranker.http import add_ranker

_START_S = 30.0
_VERSION = """
select arg_max(registry_version, (time, seq)) from skills where project = ? and source = 'declared'
"""


class Address(NamedTuple):
    url: str
    api_key: str


@contextmanager
def reading_service(settings: Settings) -> Iterator[Address]:
    """Serve the folder of the settings while the block lasts, to who knows the key."""
    key = secrets.token_hex()
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(_app(settings, key), log_level="warning", access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="reading", daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + _START_S
        while not server.started and thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        yield Address(f"http://127.0.0.1:{listener.getsockname()[1]}", key)
    finally:
        server.should_exit = True
        thread.join(_START_S)
        listener.close()


def _app(settings: Settings, key: str) -> FastAPI:
    app = FastAPI(openapi_url=None)
    guard(app, Access(False, Telemetry()))
    add_ranker(app, RankerAnswers(settings))
    tables = Tables(settings.data_dir)

    @app.middleware("http")
    async def refuse_others(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        given = request.headers.get("authorization", "").encode("latin-1")
        is_ours = secrets.compare_digest(given, f"Bearer {key}".encode())
        return await answer(request) if is_ours else Response(status_code=401)

    @app.get("/v1/registry")
    def registry(caller: Reader) -> dict[str, Any]:
        connection = tables.connect()
        (version,) = connection.execute(_VERSION, [caller.project]).fetchall()[0]
        return {"registry_version": version, "skills": active_entries(connection, project=caller.project)}

    return app
