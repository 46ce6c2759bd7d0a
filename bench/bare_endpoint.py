"""An endpoint that only parses what it is sent: the yardstick for the collector's door.

python -m bench.bare_endpoint PORT
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

Message = dict[str, Any]


async def app(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    assert scope["type"] == "http"
    parts = []
    more = True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    if scope["method"] == "POST":
        ExportTraceServiceRequest.FromString(b"".join(parts))
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/x-protobuf")]}
    )
    await send({"type": "http.response.body", "body": b""})


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", lifespan="off", access_log=False)
