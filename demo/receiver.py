"""A webhook receiver on loopback: what an operator's chat or pager would have got."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


class AlertReceiver:
    """Records every alert that is posted to ``url``, in order of arrival. Use it as a context manager."""

    def __init__(self) -> None:
        self.deliveries: list[dict[str, Any]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self.deliveries))
        self._thread = threading.Thread(target=self._server.serve_forever, name="alert-receiver", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/alerts"

    def __enter__(self) -> AlertReceiver:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(deliveries: list[dict[str, Any]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                document = json.loads(body)
            except ValueError:
                self.send_error(400, "expected JSON")
                return
            deliveries.append(document)
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Quiet: what arrives is shown by the demo itself."""

    return Handler
