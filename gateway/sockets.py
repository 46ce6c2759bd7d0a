"""The Unix socket between the collector's and the ranker's process, open to this user alone.

``serve`` listens at it and hands it to each process of the ranker, so that it never closes in between.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Requests that wait while the ranker restarts.
_BACKLOG = 512


class SocketTaken(OSError):  # noqa: N818 - a state
    """Another process listens there."""


@contextmanager
def listening_at(path: Path | None) -> Iterator[tuple[Path, socket.socket]]:
    """Listen at the path, absent in a folder of its own, while the block lasts. Raises SocketTaken, OSError."""
    with tempfile.TemporaryDirectory(prefix="pickwise-") as folder:
        used = path or Path(folder) / "ranker.sock"
        with _listen(used) as listener:
            try:
                yield used, listener
            finally:
                used.unlink(missing_ok=True)


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket():
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, suppress(ConnectionRefusedError):
                probe.connect(str(path))
                raise SocketTaken(f"another process listens at {path}")
            path.unlink()  # left by a process that was killed
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener
