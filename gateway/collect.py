"""The collector's process: HTTP and gRPC over one Collector, until SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys

import uvicorn
from anyio import to_thread
from uvloop import new_event_loop

from collector.grpc_server import start_grpc_server
from collector.mapping_pool import GC_THRESHOLDS
from collector.service import Collector
from gateway.app import create_app
from gateway.exposure import refuse_exposure
from pickwise.settings import Settings

#: Questions that are answered at once; each may take the memory of a query.
QUESTIONS = 8
#: Open requests get this long to finish after SIGTERM, seconds.
GRACE_S = 5
#: How long the flusher keeps an answer waiting for the interpreter, seconds; Python's own 5 ms make the door slow.
_SWITCH_INTERVAL_S = 0.0005


def run(settings: Settings, *, grpc: bool = True) -> None:
    """Serve until SIGTERM or SIGINT; what was acknowledged is committed before it returns. Raises ExposedError."""
    refuse_exposure(settings)
    # uvicorn handles these while it serves and raises them again afterwards: the commit must come first.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    listener = _listen(settings.host, settings.http_port)
    served = _serve(settings.model_copy(update={"http_port": listener.getsockname()[1]}), listener, grpc)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(served)


async def _serve(settings: Settings, listener: socket.socket, grpc: bool) -> None:
    to_thread.current_default_thread_limiter().total_tokens = QUESTIONS
    collector = Collector(settings, processes=settings.map_processes)
    collector.start()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    grpc_server = None
    grpc_port = None
    try:
        if grpc:
            grpc_server, grpc_port = start_grpc_server(collector, settings.host, settings.grpc_port)
        listener.listen()  # who finds the address in the lock may connect at once
        collector.announce(settings.host, settings.http_port, grpc_port)
        app = create_app(settings, collector)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_graceful_shutdown=GRACE_S, lifespan="off"
        )
        await uvicorn.Server(config).serve(sockets=[listener])
    finally:
        if grpc_server is not None:
            grpc_server.stop(GRACE_S).wait()
        await asyncio.to_thread(collector.stop)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.set_inheritable(True)
    return listener
