"""An MCP server on loopback that speaks streamable HTTP as the specification says, and badly on request."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

JSON, STREAM = "application/json", "text/event-stream"
TOOLS: list[dict[str, Any]] = [
    {
        "name": "get_forecast",
        "description": "Forecast of a city.",
        "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "outputSchema": {"type": "object"},
        "annotations": {"title": "Forecast", "readOnlyHint": True, "idempotentHint": True, "openWorldHint": True},
    },
    {
        "name": "delete_station",
        "inputSchema": {"type": "object"},
        "annotations": {"destructiveHint": True},
        "execution": {"taskSupport": "required"},
    },
    {"name": "查询天气", "description": "查询天气", "inputSchema": {"type": "object"}},
]


@dataclass
class Server:
    """What it offers and how it answers; ``seen`` are the requests: (HTTP method, JSON-RPC method, headers)."""

    tools: list[Any] = field(default_factory=lambda: list(TOOLS))
    page_size: int = 2
    streams: bool = False
    token: str | None = None
    capabilities: dict[str, Any] = field(default_factory=lambda: {"tools": {}})
    #: Answers of a JSON-RPC method in place of its own.
    results: dict[str, Any] = field(default_factory=dict)
    seen: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    url: str = ""

    async def answer(self, request: Request) -> Response:
        message = msgspec.json.decode(await request.body() or b"{}")
        method = message.get("method", "")
        self.seen.append((request.method, method, dict(request.headers)))
        if self.token is not None and request.headers.get("authorization") != f"Bearer {self.token}":
            return Response(status_code=401)
        if method not in ("initialize", "") and request.headers.get("mcp-session-id") != "s1":
            return Response(status_code=400)
        if "id" not in message:
            return Response(status_code=202)
        reply = {"jsonrpc": "2.0", "id": message["id"]} | self._reply(method, message.get("params", {}))
        headers = {"Mcp-Session-Id": "s1"} if method == "initialize" else {}
        if not self.streams:
            return Response(msgspec.json.encode(reply), media_type=JSON, headers=headers)
        return StreamingResponse(self._stream(msgspec.json.format(msgspec.json.encode(reply))), 200, headers, STREAM)

    async def _stream(self, document: bytes) -> AsyncIterator[bytes]:
        """A comment, a notification, then the answer over many lines, cut where it hurts."""
        yield b': alive\r\n\r\nevent: message\ndata: {"jsonrpc":"2.0","method":"notifications/message"}\n\n'
        whole = b"id: 7\r\n" + b"".join(b"data: " + line + b"\r\n" for line in document.splitlines()) + b"\r\n"
        yield whole[:21]
        yield whole[21:]

    def _reply(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        if method in self.results:
            answer: dict[str, Any] = self.results[method]
            return answer
        if method == "initialize":
            info = {"name": "weather", "version": "1.2"}
            return {"result": {"protocolVersion": "2025-06-18", "capabilities": self.capabilities, "serverInfo": info}}
        start = int(parameters.get("cursor", 0))
        following = start + self.page_size
        more = {"nextCursor": str(following)} if following < len(self.tools) else {}
        return {"result": {"tools": self.tools[start:following], **more}}


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """The server on a free port of loopback, at /mcp."""
    routes = [Route("/mcp", server.answer, methods=["POST", "DELETE"])]
    config = uvicorn.Config(Starlette(routes=routes), host="127.0.0.1", port=0, log_level="error", lifespan="off")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        deadline = time.monotonic() + 30
        while not running.started:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        server.url = f"http://127.0.0.1:{running.servers[0].sockets[0].getsockname()[1]}/mcp"
        yield server
    finally:
        running.should_exit = True
        thread.join()
