"""A tiny real HTTP server that answers as the service would, with ETags, and can be told to misbehave."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Service:
    """``documents`` by path; a ``status`` other than 200 is answered to everything; ``asked`` keeps rank requests."""

    documents: dict[str, Any] = field(default_factory=dict)
    status: int = 200
    delay_s: float = 0.0
    get_delay_s: float = 0.0
    rank: Any = None
    recall: Any = None
    log: list[tuple[str, int]] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""


@contextmanager
def service(**fields: Any) -> Iterator[Service]:
    state = Service(**fields)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            state.headers.append(dict(self.headers.items()))
            time.sleep(state.get_delay_s)
            document = state.documents.get(self.path)
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
            etag = f'"{hashlib.sha256(body).hexdigest()}"'
            if state.status != 200 or document is None:
                self.answer(state.status if state.status != 200 else 404, b"{}")
            elif self.headers.get("If-None-Match") == etag:
                self.answer(304, b"", etag)
            else:
                self.answer(200, body, etag)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path not in ("/v1/rank", "/v1/recall"):
                self.answer(200, b"")
                return
            state.asked.append(json.loads(body))
            time.sleep(state.delay_s)
            answer = state.rank if self.path == "/v1/rank" else state.recall
            self.answer(state.status, json.dumps(answer(state.asked[-1]) if answer else {}).encode())

        def answer(self, status: int, body: bytes, etag: str | None = None) -> None:
            state.log.append((self.path, status))
            self.send_response(status)
            if etag:
                self.send_header("ETag", etag)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
