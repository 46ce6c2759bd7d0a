"""How many connections the HTTP port holds, and for how long: none is kept that nothing useful comes over."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: File descriptors, where the machine allows so many.
_FILES = 65_536
#: The share of them that connections may take; tables, log and questions need the rest.
_SHARE = 0.75
#: A connection without a request ends after so long, seconds. Exporters send every 5 s or so, and one that sends at the
#: very moment at which its connection ends has to try again.
KEEP_ALIVE_S = 75
#: A request must have come as a whole so long after its beginning (or that of its connection), seconds, where nobody
#: reads it: who reads a body has a shorter limit of their own and answers.
REQUEST_S = 60.0


def raise_file_limit() -> int:
    """Take as many file descriptors as we may have, each connection needs one; how many connections may be open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return int(_SHARE * (most if soft == resource.RLIM_INFINITY else max(soft, most)))


class BoundedConnection(HttpToolsProtocol):
    """uvicorn's, which also ends a connection whose request doesn't come, and one too many."""

    #: Connections at once; one more is closed before it can ask anything.
    most = _FILES

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._since = self.loop.time()
        self._watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
            return
        self._watch = self.loop.call_later(REQUEST_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._since = self.loop.time()
        super().on_message_begin()

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()

    def _look(self) -> None:
        """End the connection, or look again when it may be time: one timer, so that a request costs none."""
        is_answering = self.cycle is not None and not self.cycle.response_complete
        is_idle = self.timeout_keep_alive_task is not None  # has a limit already
        rest = REQUEST_S if is_answering or is_idle else self._since + REQUEST_S - self.loop.time()
        if rest > 0:
            self._watch = self.loop.call_later(rest, self._look)
        else:
            self.transport.close()
