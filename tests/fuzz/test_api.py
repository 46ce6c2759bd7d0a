"""The whole HTTP surface as its OpenAPI document describes it, and as it does not: no request makes it fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.collector.test_service import ROOT

#: Seconds that the service is asked for, and requests a route.
SECONDS = os.environ.get("PICKWISE_FUZZ_SECONDS", "20")
EXAMPLES = os.environ.get("PICKWISE_FUZZ_EXAMPLES", "10")
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_every_route_answers_as_documented(tmp_path: Path) -> None:
    """Statuses and media types are documented ones, and none is a failure of the server."""
    served = subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz.serve", str(tmp_path / "data")], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert served.stdout is not None
        port = json.loads(served.stdout.readline())["http"]
        asked = _ask(f"http://127.0.0.1:{port}/openapi.json", tmp_path)
        assert asked.returncode == 0, asked.stdout[-6_000:]
        print(asked.stdout)
        assert served.poll() is None
    finally:
        served.terminate()
        assert served.wait(30) == 0


def _ask(url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("schemathesis")), "run", url, "--no-color", "--continue-on-failure"]
    limits = ["--max-time", SECONDS, "--max-examples", EXAMPLES, "--phases", "coverage,fuzzing"]
    options = ["--checks", CHECKS, "--generation-database", "none", "--report-dir", str(folder)]
    return subprocess.run([*command, *limits, *options], capture_output=True, text=True, cwd=folder, timeout=3_600)
