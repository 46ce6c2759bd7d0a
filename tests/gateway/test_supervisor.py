"""Parts that die are started again; parts that cannot start end the service with their last words."""

from __future__ import annotations

import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from gateway.supervisor import (
    MAX_FAST_DEATHS,
    Answering,
    HostUnknown,
    Part,
    PortTaken,
    StartError,
    Supervisor,
    refuse_same_ports,
    refuse_unknown_host,
    reserve_port,
)

SLEEPS = "import time; time.sleep(60)"


def part(tmp_path: Path, code: str, name: str = "part", is_ready: Callable[[], bool] | None = None) -> Part:
    made = Part(name, [], tmp_path, is_ready=is_ready)
    made.command = [sys.executable, "-c", code]
    return made


def never() -> bool:
    return False


def test_a_part_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "part.log").write_text("the last words of another run\n")
    broken = part(tmp_path, "import sys; print('the port is taken', file=sys.stderr); sys.exit(3)", is_ready=never)
    with pytest.raises(StartError, match="the port is taken") as raised:
        Supervisor([broken]).start(timeout_s=20)
    assert "another run" not in str(raised.value)


def test_the_start_waits_for_every_part_that_tells_when_it_is_ready(tmp_path: Path) -> None:
    served = tmp_path / "served"
    first = part(tmp_path, SLEEPS, "first", lambda: True)
    answers = part(
        tmp_path, f"import time; time.sleep(1); open({str(served)!r}, 'w'); time.sleep(60)", "second", served.exists
    )
    told = part(
        tmp_path, f"import os, time; print(os.path.exists({str(served)!r}), flush=True); time.sleep(60)", "third"
    )
    supervisor = Supervisor([first, answers, told])
    try:
        assert supervisor.start(timeout_s=20)
        assert served.exists()
        deadline = time.monotonic() + 20
        while told.last_lines() != "True":  # it was started when the others were ready
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        supervisor.stop()


def test_a_part_is_asked_past_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert Answering(f"http://127.0.0.1:{server.server_port}/")()
    assert not Answering(f"http://127.0.0.1:{server.server_port}/")()


def test_only_the_first_part_has_to_be_ready_in_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, slow = part(tmp_path, SLEEPS, "first", lambda: True), part(tmp_path, SLEEPS, "slow", never)
    supervisor = Supervisor([first, slow])
    try:
        assert supervisor.start(timeout_s=0.5)
        assert "still without slow" in caplog.text
        assert first.process is not None
        assert first.process.poll() is None
    finally:
        supervisor.stop()


def test_a_later_part_that_keeps_dying_ends_the_start_and_the_others(tmp_path: Path) -> None:
    first = part(tmp_path, SLEEPS, "first", lambda: True)
    broken = part(tmp_path, "print('no luck'); raise SystemExit(1)", "broken", never)
    with pytest.raises(StartError, match="broken keeps dying:\nno luck"):
        Supervisor([first, broken]).start(timeout_s=20)
    assert first.process is not None
    assert first.process.poll() is not None


def test_a_part_that_keeps_dying_ends_the_service(tmp_path: Path) -> None:
    broken = part(tmp_path, "print('no luck'); raise SystemExit(1)")
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        broken.start()
        with pytest.raises(StartError, match="no luck"):
            Supervisor([broken]).run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert broken.fast_deaths == MAX_FAST_DEATHS


def test_stop_kills_what_ignores_sigterm_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.supervisor.STOP_S", 0.5)
    ready = tmp_path / "ready"
    stubborn = part(
        tmp_path,
        "import signal, subprocess, sys, time, pathlib\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"pathlib.Path({str(ready)!r}).write_text(str(child.pid))\n"
        "time.sleep(60)\n",
    )
    stubborn.start()
    deadline = time.monotonic() + 20
    while not ready.exists() or not ready.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child = int(ready.read_text())
    stopper = threading.Thread(target=Supervisor([stubborn]).stop)
    stopper.start()
    stopper.join(20)
    assert stubborn.process is not None
    assert stubborn.process.poll() == -signal.SIGKILL
    deadline = time.monotonic() + 10  # the kernel takes its time to end what was killed
    while _runs(child):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_taken_port_is_named_before_anything_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"port {port} \(gRPC\).*--grpc-port"):
            reserve_port("127.0.0.1", port, "gRPC", "--grpc-port")
    assert reserve_port("127.0.0.1", 0, "HTTP", "--http-port") > 0


def test_one_port_for_two_is_refused_with_both_flags() -> None:
    refuse_same_ports({"--http-port": 0, "--grpc-port": 0, "--dashboard-port": 4318})
    with pytest.raises(PortTaken, match="--http-port and --dashboard-port are both 4318"):
        refuse_same_ports({"--http-port": 4318, "--grpc-port": 4317, "--dashboard-port": 4318})


@pytest.mark.parametrize("host", ["nohost.invalid", "a..b"])
def test_a_host_that_does_not_exist_is_named(host: str) -> None:
    with pytest.raises(HostUnknown, match=r"can't be resolved.*--host"):
        refuse_unknown_host(host)
    refuse_unknown_host("127.0.0.1")


def test_an_address_of_another_machine_is_not_a_taken_port() -> None:
    with pytest.raises(HostUnknown, match=r"no address of this machine.*--host"):
        reserve_port("192.0.2.1", 4318, "HTTP", "--http-port")


def test_a_killed_part_does_not_count_as_one_that_cannot_start(tmp_path: Path) -> None:
    killed = part(tmp_path, "import time; time.sleep(60)")
    for _ in range(MAX_FAST_DEATHS + 1):
        killed.start()
        assert killed.process is not None
        killed.process.kill()
        killed.process.wait()
        assert killed.died()
    assert killed.fast_deaths == 0


def test_a_part_that_is_started_again_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched = part(tmp_path, "import time; time.sleep(60)")
    supervisor = Supervisor([watched])
    watched.start()
    assert watched.process is not None
    watched.process.kill()
    watched.process.wait()
    supervisor._revive(watched)
    supervisor.stop()
    assert [record.getMessage().split("; ")[0] for record in caplog.records] == [
        f"{watched.name} ended (killed by SIGKILL) and is started again"
    ]
    starts = [line for line in watched.log_path.read_text().splitlines() if line.endswith("is started")]
    assert len(starts) == 2


def _runs(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
