"""A real OTLP/HTTP receiver in this process: inflates, parses and maps what arrives, as the collector does."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from collector import mapping, otlp
from collector.facts import Facts
from pickwise.settings import Settings


class OtlpReceiver:
    """Facts by project, and every problem that a span was refused for."""

    def __init__(self, status: int = 200) -> None:
        self.by_project: dict[str, Facts] = {}
        self.requests = 0
        self.status = status
        self.endpoint = ""

    @property
    def facts(self) -> Facts:
        """Of the project that spans without a project belong to."""
        return self.by_project.get("", Facts())

    def take(self, body: bytes) -> bytes:
        self.requests += 1
        parsed = otlp.parse_traces(body, "protobuf")
        for project, facts in mapping.map_traces(parsed, time.time_ns(), Settings()).items():
            self.by_project.setdefault(project, Facts()).extend(facts)
        return otlp.traces_response(parsed, "protobuf")


@contextmanager
def otlp_receiver(status: int = 200) -> Iterator[OtlpReceiver]:
    receiver = OtlpReceiver(status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            answer = receiver.take(body) if receiver.status == 200 and self.path == "/v1/traces" else b""
            self.send_response(receiver.status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    receiver.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
