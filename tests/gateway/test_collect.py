"""``pickwise collect`` says where it listens and that it ends, and names a port that it can't have."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

COLLECT = [sys.executable, "-m", "pickwise.cli", "collect"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_tells_its_addresses_and_its_end(tmp_path: Path, number: signal.Signals) -> None:
    command = [*COLLECT, "--data-dir", str(tmp_path), "--http-port", "0", "--grpc-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = "".join(process.stdout.readline() for _ in range(5))
        url = re.search(r"http +(http://127\.0\.0\.1:\d+)\n", said)
        assert url is not None, said
        assert httpx.get(f"{url[1]}/healthz", timeout=20).is_success
        assert re.search(r"grpc +127\.0\.0\.1:[1-9]\d*\n", said)
        assert str(tmp_path) in said
        process.send_signal(number)
        _, remarks = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "stopping: committing what was acknowledged" in remarks


@pytest.mark.parametrize("flag", ["--http-port", "--grpc-port"])
def test_a_taken_port_is_one_line_with_its_flag(tmp_path: Path, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ports = {"--http-port": "0", "--grpc-port": "0"} | {flag: port}
        command = [*COLLECT, "--data-dir", str(tmp_path), *(word for pair in ports.items() for word in pair)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: port {port} ")
    assert line.endswith(f"give another with {flag}")
