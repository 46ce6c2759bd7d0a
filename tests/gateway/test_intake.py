"""Files come in alike with and without a running service; a held folder is named."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from collector.importers import Batch
from collector.lock import FolderHeld
from collector.service import Collector
from gateway.intake import ServiceRefused, open_intake
from pickwise.settings import Settings
from tests.collector.test_overload import served, until

GOOD: dict[str, object] = {"type": "call", "skill_id": "s", "event_id": "good", "ok": True}
BAD: dict[str, object] = {"type": "call", "event_id": "bad"}


def batch(*events: dict[str, object]) -> Batch:
    return Batch("events", "\n".join(map(json.dumps, events)).encode(), "ndjson", len(events))


def test_by_itself_a_bad_event_is_named_and_the_good_one_taken(settings: Settings) -> None:
    with open_intake(settings, "default") as intake:
        receipt = intake.send(batch(GOOD, BAD))
        intake.refresh()
    assert receipt.accepted == 1
    (problem,) = receipt.problems
    assert "bad" in problem
    assert "skill_id" in problem


def test_a_folder_held_without_a_port_is_refused_by_name(settings: Settings) -> None:
    other = Collector(settings)
    other.start()
    try:
        with pytest.raises(FolderHeld, match="in use by process"), open_intake(settings, "default"):
            pass
    finally:
        other.stop()


def test_registry_entries_and_their_refusals(settings: Settings, tmp_path: Path) -> None:
    entries = Batch("registry", b'{"skill_id": "a"}\n{"name": "no id"}\n', "ndjson", 2)
    with open_intake(settings, "default") as intake:
        receipt = intake.send(entries)
    assert receipt.accepted == 1
    assert "skill_id" in receipt.problems[0]
    assert tmp_path.exists()


@pytest.mark.parametrize("is_served", [False, True])
def test_a_strict_way_in_refuses_entries_with_errors_and_no_events(tmp_path: Path, is_served: bool) -> None:
    entries = Batch("registry", b'{"skill_id": "a"}\n', "ndjson", 1)
    with ExitStack() as stack:
        settings = Settings(data_dir=tmp_path)
        if is_served:
            service = stack.enter_context(served(tmp_path))
            service.collector.announce("127.0.0.1", int(service.url.rpartition(":")[2]), None)
            settings = service.collector.settings
        intake = stack.enter_context(open_intake(settings, "default", strict=True))
        with pytest.raises(ServiceRefused, match=r"strict: 1 finding.*: a: "):
            intake.send(entries)
        assert intake.send(batch(GOOD)).accepted == 1


@pytest.mark.parametrize("project", ["", ".", "../x", "a b", "x" * 65])
def test_a_project_that_no_service_would_take_is_refused_here_too(settings: Settings, project: str) -> None:
    with pytest.raises(ServiceRefused, match="project: expected"), open_intake(settings, project):
        pass


def test_a_busy_service_is_asked_again(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        service.collector.announce("127.0.0.1", int(service.url.rpartition(":")[2]), None)
        admission = service.collector.admission
        with ThreadPoolExecutor(1) as threads, open_intake(service.collector.settings, "default") as intake:
            with admission.entered_from_thread(service.collector.settings.inflight_bytes):
                receipt = threads.submit(intake.send, batch(GOOD))
                until(lambda: admission.refused > 0)
            assert receipt.result(30).accepted == 1
