"""The doctor reads a running service and its folder: planted problems are found, with their mend."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import uvicorn
from typer.testing import CliRunner

from collector.control import Control
from collector.keys import KeyStore
from collector.lake_version import mark_version
from collector.lock import Holder
from collector.service import Collector
from gateway.app import create_app
from gateway.check_service import Counters, service_checks
from gateway.doctor import examine
from gateway.supervisor import bind
from pickwise.cli import app
from pickwise.settings import Settings

Found = dict[str, dict[str, str]]


class Service:
    """A collector behind its HTTP port, in a thread."""

    def __init__(self, settings: Settings, collector: Collector, port: int) -> None:
        self.settings = settings
        self.collector = collector
        self.url = f"http://127.0.0.1:{port}"

    def post(self, *events: dict[str, Any], refresh: bool = True) -> httpx.Response:
        answer = httpx.post(f"{self.url}/v1/events", json=list(events), timeout=20)
        if refresh:
            assert httpx.post(f"{self.url}/v1/refresh", timeout=20).is_success
        return answer


@contextmanager
def serving(data_dir: Path, address: str = "127.0.0.1", **changes: Any) -> Iterator[Service]:
    settings = Settings(data_dir=data_dir, **({"flush_interval_s": 0.05} | changes))
    collector = Collector(settings)
    collector.start()
    listener = bind("127.0.0.1", 0, "HTTP", "--http-port")
    port = listener.getsockname()[1]
    listener.listen()
    collector.announce(address, port, None)
    server = uvicorn.Server(uvicorn.Config(create_app(settings, collector), log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield Service(settings, collector, port)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
        collector.stop()


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PICKWISE_EMBEDDER", "words")
    monkeypatch.setenv("PICKWISE_FLUSH_INTERVAL_S", "0.05")


def found(data_dir: Path) -> Found:
    return {check["name"]: check for check in examine(data_dir)["checks"]}


def state(checks: Found, name: str) -> str:
    return checks[name]["state"]


def call(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "call", "event_id": name, "skill_id": "s", "arguments": {"to": "Ada"}} | fields


def test_a_service_that_fares_well_has_nothing_bad(tmp_path: Path) -> None:
    with serving(tmp_path / "d") as service:
        service.post(call("a"))
        service.post({"type": "skill", "skill_id": "s", "description": "does s"})
        httpx.put(f"{service.url}/v1/registry", json=[{"skill_id": "s", "description": "does it"}], timeout=20)
        checks = found(tmp_path / "d")
    assert not [check for check in checks.values() if check["state"] == "bad"]
    for name in (
        "service",
        "ready",
        "backlog",
        "lag",
        "overload",
        "commits",
        "repeats",
        "redactions",
        "events",
        "keys",
    ):
        assert state(checks, name) == "ok", checks[name]
    assert "1 argument" in checks["redactions"]["finding"]
    assert state(checks, "registries") == "ok"


def test_refused_items_are_told_with_the_field_and_metric_points_apart(tmp_path: Path) -> None:
    with serving(tmp_path / "d") as service:
        service.post(call("a"), call("b", time="soon"), call("c", time="later"))
        point = {"name": "m", "gauge": {"dataPoints": [{"asInt": "1", "timeUnixNano": "1"}]}}
        metrics = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [point]}]}]}
        assert httpx.post(f"{service.url}/v1/metrics", json=metrics, timeout=20).is_success
        checks = found(tmp_path / "d")
    assert state(checks, "rejected items") == "bad"
    assert "2 events" in checks["rejected items"]["finding"]
    assert "most often wrong: time" in checks["rejected items"]["finding"]
    assert "OTEL_METRICS_EXPORTER=none" in checks["metric points"]["mend"]


def test_an_exporter_that_sends_again_is_noted(tmp_path: Path) -> None:
    events = [call(f"e{number}", time=1_760_000_000_000_000_000) for number in range(150)]
    with serving(tmp_path / "d") as service:
        service.post(*events)
        service.post(*events)
        checks = found(tmp_path / "d")
    assert state(checks, "repeats") == "note"
    assert "150 rows (50%)" in checks["repeats"]["finding"]
    assert "time-out" in checks["repeats"]["mend"] or "TIMEOUT" in checks["repeats"]["mend"]


def test_a_slow_flush_interval_is_found_by_its_lag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICKWISE_FLUSH_INTERVAL_S", "3.2")
    with serving(tmp_path / "d", flush_interval_s=3.2) as service:
        service.post(call("a"), refresh=False)
        deadline = time.monotonic() + 20
        while service.collector.flusher.position < 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        checks = found(tmp_path / "d")
    assert state(checks, "lag") == "bad"
    assert "flush_interval_s, now 3.2" in checks["lag"]["mend"]


def test_the_lag_of_few_commits_is_no_fault(tmp_path: Path) -> None:
    with serving(tmp_path / "d") as service:
        for commits, expected in ((3, "note"), (200, "bad")):
            for _ in range(commits):
                service.collector.telemetry.lag.observe(8.0)
            checks = found(tmp_path / "d")
            assert state(checks, "lag") == expected
            assert ("of 3 commits" in checks["lag"]["finding"]) == (expected == "note")


def test_commits_that_fail_and_a_backlog_that_stands_still(tmp_path: Path) -> None:
    with serving(tmp_path / "d") as service:
        blocked = tmp_path / "d/lake/calls"
        blocked.parent.mkdir(parents=True, exist_ok=True)
        blocked.write_text("a file where the table should be")
        service.post(call("a"), refresh=False)
        deadline = time.monotonic() + 20
        while "pickwise_commit_failures_total{" not in httpx.get(f"{service.url}/metrics").text:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        checks = found(tmp_path / "d")
        blocked.unlink()
        assert service.collector.refresh(30)
    assert state(checks, "commits") == "bad"
    assert "commit to calls" in checks["commits"]["finding"]
    assert state(checks, "backlog") == "bad"
    assert "1 requests" in checks["backlog"]["finding"]


def test_a_full_backlog_is_told_as_overload_and_not_ready(tmp_path: Path) -> None:
    with serving(tmp_path / "d", flush_interval_s=600.0, backlog_bytes=1) as service:
        assert service.post(call("a"), refresh=False).status_code == 200
        assert service.post(call("b"), refresh=False).status_code == 503
        checks = found(tmp_path / "d")
    assert state(checks, "ready") == "bad"
    assert "not yet committed" in checks["ready"]["finding"]
    assert state(checks, "overload") == "bad"
    assert "1 requests (50.0%)" in checks["overload"]["finding"]
    assert "`backlog`" in checks["overload"]["mend"]


def test_an_open_allow_list_is_noted_when_nothing_is_redacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICKWISE_ALLOW_ARGUMENTS", "to")
    with serving(tmp_path / "d") as service:
        service.post(call("a"))
        checks = found(tmp_path / "d")
    assert state(checks, "redactions") == "note"
    assert "to" in checks["redactions"]["mend"]


def test_a_project_without_a_registry_is_named(tmp_path: Path) -> None:
    with serving(tmp_path / "d") as service:
        service.post(call("a"))
        checks = found(tmp_path / "d")
    assert state(checks, "registries") == "note"
    assert "--project default" in checks["registries"]["mend"]
    assert "the skills that were seen offered" in checks["registries"]["finding"]


def test_a_service_beyond_this_machine_without_keys_is_bad(tmp_path: Path) -> None:
    with serving(tmp_path / "d", address="0.0.0.0"):
        checks = found(tmp_path / "d")
    assert state(checks, "keys") == "bad"
    assert "pickwise keys create" in checks["keys"]["mend"]


def test_with_keys_the_counters_need_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    control = Control(tmp_path / "d")
    _, secret = KeyStore(control).create("p", ["read"])
    control.close()
    with serving(tmp_path / "d") as service:
        assert service.post(call("a"), refresh=False).status_code == 401
        without = found(tmp_path / "d")
        monkeypatch.setenv("PICKWISE_API_KEY", secret)
        report = examine(tmp_path / "d")
    assert state(without, "counters") == "note"
    assert "PICKWISE_API_KEY" in without["counters"]["mend"]
    checks = {check["name"]: check for check in report["checks"]}
    assert "counters" not in checks
    assert "2 missing" in checks["refused keys"]["finding"]
    assert state(checks, "keys") == "ok"
    assert secret not in json.dumps(report, default=str)


def test_a_service_whose_last_key_has_ended_is_closed(tmp_path: Path) -> None:
    control = Control(tmp_path / "d")
    key, _ = KeyStore(control).create("p", ["read"])
    KeyStore(control).revoke(key.id)
    control.close()
    for address in ("127.0.0.1", "0.0.0.0"):
        with serving(tmp_path / "d", address=address) as service:
            assert service.post(call("a"), refresh=False).status_code == 401
            check = found(tmp_path / "d")["keys"]
        assert check["state"] == "bad"
        assert "no key is active: the last was revoked. All are answered 401" in check["finding"]
        assert "pickwise keys create" in check["mend"]


def test_refusals_of_good_keys_are_told_with_their_own_mends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    control = Control(tmp_path / "d")
    _, reader = KeyStore(control).create("mine", ["read"])
    _, sender = KeyStore(control).create("mine", ["ingest"])
    control.close()
    monkeypatch.setenv("PICKWISE_API_KEY", reader)
    span = {"name": "s", "traceId": "01" * 16, "spanId": "02" * 8}
    resource = {"attributes": [{"key": "pickwise.project", "value": {"stringValue": "theirs"}}]}
    traces = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}
    with serving(tmp_path / "d") as service:
        url = f"{service.url}/v1/traces"
        heads = [{"Authorization": f"Bearer {key}"} for key in (reader, sender)]
        assert httpx.post(url, json=traces, headers=heads[0], timeout=20).status_code == 403
        assert httpx.post(url, json=traces, headers=heads[1] | {"X-Pickwise-Project": "x"}, timeout=20).is_error
        assert httpx.post(url, json=traces, headers=heads[1], timeout=20).is_success
        checks = found(tmp_path / "d")
    assert "1 role" in checks["refused keys"]["finding"]
    assert "a key with that role" in checks["refused keys"]["mend"]
    assert "a key of that project" in checks["refused keys"]["mend"]
    assert "give the sender a key" not in checks["refused keys"]["mend"]
    assert checks["rejected items"]["finding"].startswith("1 spans were refused")
    assert checks["rejected items"]["finding"].endswith("most often wrong: project")


def test_a_service_that_does_not_answer_is_bad(tmp_path: Path) -> None:
    listener = bind("127.0.0.1", 0, "HTTP", "--http-port")  # bound, but nobody listens
    held = Holder(
        pid=os.getpid(), host="h", address="127.0.0.1", http_port=listener.getsockname()[1], started_at=time.time()
    )
    try:
        checks = {check.name: check for check in service_checks(Settings(data_dir=tmp_path), held)}
    finally:
        listener.close()
    assert checks["ready"].state == "bad"
    assert "does not answer" in checks["ready"].finding


def test_silence_is_noted(tmp_path: Path) -> None:
    with serving(tmp_path / "d") as service:
        service.post(call("a"))
        service.collector.telemetry.last_accepted.set(time.time() - 3 * 3_600)
        held = Holder(
            pid=os.getpid(),
            host="h",
            address="127.0.0.1",
            http_port=int(service.url.rsplit(":", 1)[1]),
            started_at=time.time() - 5 * 3_600,
        )
        checks = {check.name: check for check in service_checks(service.settings, held)}
    assert checks["events"].state == "note"
    assert "3.0 h ago" in checks["events"].finding


def test_a_torn_log_is_noted_after_the_start(tmp_path: Path) -> None:
    leave_a_log(tmp_path / "d")
    (segment,) = (tmp_path / "d/wal").glob("*.wal")
    with segment.open("ab") as file:
        file.write(b"half a record")
    with serving(tmp_path / "d"):
        checks = found(tmp_path / "d")
    assert state(checks, "log damage") == "note"
    assert "13 bytes" in checks["log damage"]["finding"]


# -- without a service --------------------------------------------------------------------------------------------


def leave_a_log(data_dir: Path) -> None:
    """What a killed collector leaves: a request in the log."""
    from collector.wal import Wal

    wal = Wal(data_dir / "wal", queue_bytes=2**20, backlog_bytes=2**20)
    wal.append("events", "p", "json", json.dumps([call("a")]).encode()).result(10)
    wal.close()


def test_a_log_that_was_left_is_counted(tmp_path: Path) -> None:
    leave_a_log(tmp_path / "d")
    checks = found(tmp_path / "d")
    assert state(checks, "service") == "note"
    assert state(checks, "log") == "note"
    assert checks["log"]["finding"].startswith("1 acknowledged")


def test_damage_and_foreign_files_in_the_log(tmp_path: Path) -> None:
    wal = tmp_path / "d/wal"
    leave_a_log(tmp_path / "d")
    (segment,) = wal.glob("*.wal")
    body = bytearray(segment.read_bytes())
    body[-3] ^= 0xFF
    segment.write_bytes(body)
    (wal / f"{9:020d}.wal").write_bytes(segment.read_bytes()[:8])
    assert "checksum" in found(tmp_path / "d")["log"]["finding"]
    (wal / f"{0:020d}.wal").write_bytes(b"not a segment of ours")
    checks = found(tmp_path / "d")
    assert state(checks, "log") == "bad"
    assert "not a segment" in checks["log"]["finding"]
    (wal / f"{0:020d}.damaged").touch()
    assert state(found(tmp_path / "d"), "damaged log") == "bad"


def test_dead_letters_are_told_by_the_class_of_their_error(tmp_path: Path) -> None:
    from collector.dead_letters import Letter
    from collector.segment import Header

    folder = tmp_path / "d/rejected"
    folder.mkdir(parents=True)
    header = Header(seq=1, kind="events", project="p", received_at=1, encoding="json", events=1)
    (folder / "1.json").write_bytes(msgspec.json.encode(Letter(header, "KeyError: 'private'", "")))
    (folder / "2.json").write_bytes(b"{")
    check = found(tmp_path / "d")["rejected"]
    assert check["state"] == "bad"
    assert "2 requests" in check["finding"]
    assert "1 × KeyError" in check["finding"]
    assert "private" not in json.dumps(check)
    assert "pickwise replay" in check["mend"]


def test_tables_of_a_newer_version_or_unreadable_ones(tmp_path: Path) -> None:
    with serving(tmp_path / "d") as service:
        service.post(call("a"))
    for entry in (tmp_path / "d/lake/calls/_delta_log").glob("*.json"):
        entry.write_bytes(b"not a log")
    assert state(found(tmp_path / "d"), "table calls") == "bad"
    mark_version(tmp_path / "d/lake", 1_000)
    checks = found(tmp_path / "d")
    assert state(checks, "tables") == "bad"
    assert "1000" in checks["tables"]["finding"]


def test_the_command_stays_readable_by_machines(tmp_path: Path) -> None:
    leave_a_log(tmp_path / "d")
    result = CliRunner().invoke(app, ["doctor", "--data-dir", str(tmp_path / "d"), "--json"])
    report = json.loads(result.stdout)
    assert {"checks", "settings"} == set(report)
    assert {tuple(check) for check in report["checks"]} == {("name", "state", "finding", "mend")}
    assert {check["state"] for check in report["checks"]} <= {"ok", "note", "bad"}


def test_a_quantile_lies_on_the_line_within_its_bucket() -> None:
    text = "\n".join(
        [
            "# TYPE lag histogram",
            'lag_bucket{le="1.0"} 90.0',
            'lag_bucket{le="3.0"} 98.0',
            'lag_bucket{le="5.0"} 100.0',
            'lag_bucket{le="+Inf"} 100.0',
            "lag_count 100.0",
            "lag_sum 1.0",
            "",
        ]
    )
    counters = Counters(text)
    assert counters.quantile("lag", 0.99) == pytest.approx(4.0)
    assert counters.quantile("lag", 0.5) == pytest.approx(0.5 / 0.9)
    assert counters.quantile("none", 0.5) is None
