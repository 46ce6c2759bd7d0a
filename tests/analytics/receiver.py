"""A real HTTP server on loopback that keeps what it is posted and answers as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """``answers`` are the status codes of the next posts; after them it answers 200."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        #: (path, headers, raw body, status it was answered with)
        self.posts: list[tuple[str, dict[str, str], bytes, int]] = []
        #: Called when a post is read, before it is answered.
        self.on_post: Callable[[], object] = lambda: None
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = receiver.answers.pop(0) if receiver.answers else 200
                receiver.posts.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body, status))
                receiver.on_post()
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Keep the test's output clean."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"

    @property
    def taken(self) -> list[Any]:
        """Bodies that were answered with success, in order."""
        return [json.loads(body) for _, _, body, status in self.posts if status < 300]

    @contextmanager
    def serving(self) -> Iterator[Receiver]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()
