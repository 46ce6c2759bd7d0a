"""The collector's process: HTTP and gRPC over one Collector, until SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
from contextlib import suppress
from typing import Protocol

import uvicorn
from anyio import to_thread
from uvloop import new_event_loop

from collector.grpc_server import start_grpc_server
from collector.mapping_pool import GC_THRESHOLDS
from collector.service import Collector
from gateway.app import create_app
from gateway.connections import KEEP_ALIVE_S, BoundedConnection, raise_file_limit
from gateway.exposure import refuse_exposure
from gateway.supervisor import bind, refuse_same_ports, refuse_unknown_host, reserve_port
from pickwise.settings import Settings

#: Questions that are answered at once; each may take the memory of a query.
QUESTIONS = 8
#: Open requests get this long to finish after SIGTERM, seconds.
GRACE_S = 5
#: How long the flusher keeps an answer waiting for the interpreter, seconds; Python's own 5 ms make the door slow.
_SWITCH_INTERVAL_S = 0.0005


class Told(Protocol):
    """Who started the collector is told of it."""

    def listening(self, http_port: int, grpc_port: int | None) -> None:
        """Requests are taken from now on."""

    def stopping(self) -> None:
        """A signal came: nothing more is taken, and what was acknowledged will be committed."""


def run(settings: Settings, told: Told, *, grpc: bool = True, listener: socket.socket | None = None) -> None:
    """Serve until SIGTERM or SIGINT; what was acknowledged is committed before it returns.

    Where one comes before requests are taken, the start is broken off: the log keeps what an earlier run left in it.
    ``listener``: a bound socket, used in place of the settings' HTTP port.
    Raises ExposedError, HostUnknown and PortTaken before anything is started.
    """
    with suppress(_BrokenOff):
        _run(settings, told, grpc, listener, _Signals())


def _run(settings: Settings, told: Told, grpc: bool, listener: socket.socket | None, signals: _Signals) -> None:
    refuse_unknown_host(settings.host)
    BoundedConnection.most = raise_file_limit()
    refuse_exposure(settings)
    if grpc:
        refuse_same_ports({"--http-port": settings.http_port, "--grpc-port": settings.grpc_port})
        reserve_port(settings.host, settings.grpc_port, "gRPC", "--grpc-port")  # gRPC itself would say it in C++
    listener = listener or bind(settings.host, settings.http_port, "HTTP", "--http-port")
    at_port = settings.model_copy(update={"http_port": listener.getsockname()[1]})
    served = _serve(at_port, listener, told, grpc, signals)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(served)


class _BrokenOff(BaseException):
    """A signal came while the collector started."""


class _Signals:
    """SIGTERM and SIGINT, while uvicorn doesn't handle them.

    They break off the start. Later they are only noted: uvicorn raises them again when it has served, and the commit
    must come first.
    """

    def __init__(self) -> None:
        self.came = False
        self.started = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, *_: object) -> None:
        is_first, self.came = not self.came, True
        if is_first and not self.started:
            raise _BrokenOff


async def _serve(settings: Settings, listener: socket.socket, told: Told, grpc: bool, signals: _Signals) -> None:
    to_thread.current_default_thread_limiter().total_tokens = QUESTIONS
    collector = Collector(settings, processes=settings.map_processes)
    grpc_server = None
    grpc_port = None
    try:
        collector.start()
        signals.started = True
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        if grpc:
            grpc_server, grpc_port = start_grpc_server(collector, settings.host, settings.grpc_port)
        listener.listen()  # who finds the address in the lock may connect at once
        collector.announce(settings.host, settings.http_port, grpc_port)
        app = create_app(settings, collector)
        config = uvicorn.Config(
            app,
            http=BoundedConnection,
            log_level="warning",
            access_log=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
            lifespan="off",
        )
        told.listening(settings.http_port, grpc_port)
        await _Server(config, told, signals).serve(sockets=[listener])
    finally:
        if grpc_server is not None:
            grpc_server.stop(GRACE_S).wait()
        await asyncio.to_thread(collector.stop)


class _Server(uvicorn.Server):
    """uvicorn's, which knows of a signal that came before it and tells of its end when that begins."""

    def __init__(self, config: uvicorn.Config, told: Told, signals: _Signals) -> None:
        super().__init__(config)
        self._told = told
        self._signals = signals

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.should_exit |= self._signals.came

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._told.stopping()
        await super().shutdown(sockets)
