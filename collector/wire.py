"""The line between two of our processes: Python objects, one after the other, without waiting for ever."""

from __future__ import annotations

import io
import multiprocessing as mp
import pickle
import signal
import socket
import struct
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

_CONTEXT = mp.get_context("spawn")
_LENGTH = struct.Struct("!Q")


class Wire:
    """One end of the line. The other one is handed to a process as it is started, and closed here."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    @classmethod
    def pair(cls) -> tuple[Wire, Wire]:
        """Both ends of a new line. Raises OSError."""
        ours, theirs = socket.socketpair()
        return cls(ours), cls(theirs)

    def wait_at_most(self, seconds: float) -> None:
        """From now on: how long the other side may take in what is sent, and how long it may send nothing."""
        self._socket.settimeout(seconds)

    def send(self, message: object) -> None:
        """Raises OSError, also when it takes too long; the line is of no use then."""
        out = io.BytesIO()
        out.write(bytes(_LENGTH.size))
        pickle.dump(message, out, pickle.HIGHEST_PROTOCOL)
        with out.getbuffer() as whole:
            _LENGTH.pack_into(whole, 0, len(whole) - _LENGTH.size)
            self._socket.sendall(whole)

    def receive(self) -> Any:
        """Raises EOFError when the other side is gone, OSError also when it takes too long."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        return pickle.loads(self._read(length))

    def close(self) -> None:
        self._socket.close()

    def _read(self, length: int) -> bytearray:
        """Into one piece of memory: a Connection of multiprocessing allots all that is still to come at each read."""
        found = bytearray(length)
        with memoryview(found) as view:
            filled = 0
            while filled < length:
                count = self._socket.recv_into(view[filled:])
                if not count:
                    raise EOFError("the other side is gone")
                filled += count
        return found


def spawned(serve: Callable[..., None], *arguments: Any) -> tuple[BaseProcess, Wire]:
    """A new process that runs ``serve(wire, *arguments)`` and ends with this one, and our end of its line.

    Raises what keeps it from starting.
    """
    ours, theirs = Wire.pair()
    process = _CONTEXT.Process(target=serve, args=(theirs, *arguments), daemon=True)
    # Ctrl-C goes to the whole group, and we end what we started. What is blocked here is blocked there.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        process.start()
    except BaseException:
        ours.close()
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
        theirs.close()  # else nobody would notice that the other side is gone
    return process, ours
