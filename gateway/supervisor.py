"""``pickwise serve``: each part its own process in one session, ended together, restarted when one dies."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import httpx
import psutil

from pickwise.settings import SUPERVISED

logger = logging.getLogger(__name__)

#: All parts must have ended this long after SIGTERM, seconds; then they are killed.
STOP_S = 15.0
#: A part that ends by itself with an error sooner than this after its start can't start, seconds. One that was killed
#: (an operator, the kernel out of memory) is started again however often.
SETTLED_S = 10.0
MAX_FAST_DEATHS = 3


class StartError(RuntimeError):
    """A part did not come up; the message carries what it printed last."""


class Part:
    """One process of the service: its command and, while it runs, its handle.

    It is given the ``variables`` besides those of this process, and the file descriptor ``inherited``. ``is_ready``
    tells whether it does its work; absent, nobody waits for that.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        log_folder: Path,
        variables: Mapping[str, str] | None = None,
        inherited: int | None = None,
        is_ready: Callable[[], bool] | None = None,
    ) -> None:
        self.name = name
        self.is_ready = is_ready
        self._variables = {SUPERVISED: "1", **(variables or {})}
        self._inherited = () if inherited is None else (inherited,)
        self.command = [sys.executable, "-m", "pickwise.cli", *arguments]
        self.log_path = log_folder / f"{name}.log"
        self.fast_deaths = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        #: Where in its log the output of this process begins, bytes.
        self._log_start = 0

    def start(self) -> None:
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            log.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {self.name} is started\n".encode())
            log.flush()
            self._log_start = log.tell()
            # An own process group, so that a Ctrl-C reaches the supervisor alone and parts end in order.
            self.process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                process_group=0,
                env=os.environ | self._variables,
                pass_fds=self._inherited,
            )
        self._started = time.monotonic()

    def died(self) -> bool:
        if self.process is None or self.process.poll() is None:
            return False
        failed = self.process.returncode > 0 and time.monotonic() - self._started < SETTLED_S
        self.fast_deaths = self.fast_deaths + 1 if failed else 0
        return True

    def ending(self) -> str:
        """How the process that is gone came to its end."""
        code = self.process.returncode if self.process is not None else 0
        return f"exit {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"

    def last_lines(self) -> str:
        """The last of what this process printed; what those before it did is another story."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-5:])


class Supervisor:
    """Starts the parts, restarts one that dies, ends all on SIGTERM or SIGINT; ``held`` is let go last.

    Without the first part there is no service.
    """

    def __init__(self, parts: Sequence[Part], held: ExitStack | None = None) -> None:
        self.parts = parts
        self._held = held or ExitStack()
        self._stopping = False

    def heed_signals(self) -> None:
        """From now on SIGTERM and SIGINT end the service in order."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def start(self, timeout_s: float = 60.0) -> bool:
        """Start every part; returns when the service is ready, or False when a signal that is heeded ended it before.

        Parts that nobody waits for come last, so that the others have the machine. Raises StartError with the reason.
        """
        deadline = time.monotonic() + timeout_s
        awaited = [part for part in self.parts if part.is_ready is not None]
        try:
            for part in awaited:
                part.start()
            while waiting := [part for part in awaited if part.is_ready is not None and not part.is_ready()]:
                if self._stopping:
                    self.stop()
                    return False
                if time.monotonic() > deadline and self.parts[0] not in waiting:
                    logger.warning("still without %s", " and ".join(part.name for part in waiting))
                    break
                self._watch_start(waiting, deadline)
                time.sleep(0.1)
        except StartError:
            self.stop()
            raise
        for part in self.parts:
            if part not in awaited:
                part.start()
        return True

    def _watch_start(self, waiting: Sequence[Part], deadline: float) -> None:
        """Raises StartError when the first part died or takes too long, or when another one keeps dying."""
        for part in waiting:
            if part is not self.parts[0]:
                self._revive(part)
            elif part.died() or time.monotonic() > deadline:
                raise StartError(f"{part.name} did not start:\n{part.last_lines()}")

    def run(self) -> None:
        """Watch the parts until a signal arrives, then end them."""
        self.heed_signals()
        try:
            while not self._stopping:
                for part in self.parts:
                    self._revive(part)
                time.sleep(0.2)
        finally:
            self.stop()

    def stop(self) -> None:
        """SIGTERM to all, wait, kill what is left with all its children."""
        running = [part.process for part in self.parts if part.process is not None and part.process.poll() is None]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + STOP_S
        for process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _kill_tree(process.pid)
                process.wait()
        self._held.close()

    def _revive(self, part: Part) -> None:
        if not part.died() or self._stopping:
            return
        if part.fast_deaths >= MAX_FAST_DEATHS:
            raise StartError(f"{part.name} keeps dying:\n{part.last_lines()}")
        logger.warning("%s ended (%s) and is started again; its log: %s", part.name, part.ending(), part.log_path)
        part.start()

    def _on_signal(self, *_: object) -> None:
        self._stopping = True


class Answering:
    """Whether a part answers 200 at its address, or over its Unix ``socket``."""

    def __init__(self, url: str, socket: Path | None = None) -> None:
        self._url = url
        transport = httpx.HTTPTransport(uds=None if socket is None else str(socket))
        self._client = httpx.Client(transport=transport, timeout=1.0)  # with a transport of its own: past any proxy

    def __call__(self) -> bool:
        try:
            return self._client.get(self._url).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False


class PortTaken(StartError):  # noqa: N818 - a state of the machine
    """A port that the service was told to use can't be had; the message names the flag that changes it."""


class HostUnknown(StartError):  # noqa: N818 - a state of the machine
    """The host is no address of this machine."""


def bind(host: str, port: int, what: str, flag: str) -> socket.socket:
    """A socket that has the port, a free one for 0, and does not listen yet. Raises PortTaken, HostUnknown."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise _unknown(host, error) from error
        hint = ", perhaps by another OpenTelemetry collector" if what != "dashboard" else ""
        raise PortTaken(
            f"port {port} ({what}) on {host} can't be used{hint}: {error.strerror}; give another with {flag}"
        ) from error
    return listener


def reserve_port(host: str, port: int, what: str, flag: str) -> int:
    """The port if it can be listened on, a free one for 0. Raises PortTaken before anything is started on it."""
    with bind(host, port, what, flag) as probe:
        reserved: int = probe.getsockname()[1]
        return reserved


def refuse_same_ports(ports: Mapping[str, int]) -> None:
    """Raises PortTaken when two flags name one port; 0 is a free one for each."""
    flags: dict[int, str] = {}
    for flag, port in ports.items():
        if port and port in flags:
            raise PortTaken(f"{flags[port]} and {flag} are both {port}: give another with one of them")
        flags[port] = flag


def refuse_unknown_host(host: str) -> None:
    """Raises HostUnknown when the name can't be resolved."""
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError) as error:
        raise _unknown(host, error) from error


def _unknown(host: str, error: Exception) -> HostUnknown:
    why = error.strerror if isinstance(error, OSError) else str(error)
    fault = (
        "is no address of this machine" if getattr(error, "errno", 0) == errno.EADDRNOTAVAIL else "can't be resolved"
    )
    return HostUnknown(f"host {host:.80} {fault} ({why}): give an address of this machine with --host, e.g. 127.0.0.1")


def free_port(host: str) -> int:
    """A port that was free a moment ago."""
    return reserve_port(host, 0, "any", "--host")


def die_with_parent() -> None:
    """Ask the kernel to end this process when its parent dies, also by kill -9 (Linux only)."""
    if sys.platform != "linux":
        return
    import ctypes

    pr_set_pdeathsig = 1
    parent = os.getppid()
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def _kill_tree(pid: int) -> None:
    try:
        process = psutil.Process(pid)
        tree = [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return
    for member in tree:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
