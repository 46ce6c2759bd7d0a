"""The jobs of all projects: one that fails stops no other, is logged, and the doctor tells of it until it ends well."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analytics import nightly
from analytics.tables import Tables
from collector.control import JobRunning
from gateway import jobs
from gateway.check_jobs import jobs_checks
from pickwise.settings import Settings
from ranker import train, weights

PROJECTS = ["a", "b", "c"]
JOBS: dict[str, tuple[Any, str, Callable[[Settings], None]]] = {
    "nightly": (nightly, "run", jobs.catch_up),
    "nightly of a night": (nightly, "run", jobs.night),
    "train": (train, "train", jobs.night),
    "weights": (weights, "refresh", jobs.refresh_weights),
}


class Work:
    """Stands in for the jobs: notes the projects, and raises for those that it is told to."""

    def __init__(self) -> None:
        self.errors: dict[str, Exception] = {}
        self.done: list[str] = []

    def __call__(self, _data_dir: Path, _settings: Settings, project: str) -> None:
        self.done.append(project)
        if project in self.errors:
            raise self.errors[project]


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> dict[str, Work]:
    monkeypatch.setattr(Tables, "projects", lambda _: PROJECTS)
    found = {}
    for module, name, _ in JOBS.values():
        found[name] = Work()
        monkeypatch.setattr(module, name, found[name])
    return found


@pytest.mark.parametrize("case", JOBS)
@pytest.mark.parametrize("failing", [["a"], ["b"], ["a", "c"], PROJECTS], ids="".join)
def test_a_fault_stops_no_other_project(
    works: dict[str, Work], tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str, failing: list[str]
) -> None:
    settings = Settings(data_dir=tmp_path)
    _, name, run = JOBS[case]
    works[name].errors = {project: TypeError("the text of a user") for project in failing}
    run(settings)
    assert works[name].done == PROJECTS
    if run is jobs.night:
        assert works["train"].done == PROJECTS
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.exc_info is not None for record in logged] == [True] * len(failing)
    (check,) = jobs_checks(settings)
    assert check.state == "bad"
    for project in failing:
        assert f"{case.partition(' ')[0]} of {project} (TypeError, " in check.finding
    assert "a user" not in check.finding
    works[name].errors = {}
    run(settings)
    assert not list(jobs_checks(settings))


def test_a_job_that_runs_elsewhere_is_no_fault(works: dict[str, Work], tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    works["refresh"].errors = {"a": JobRunning("weights is already running for project a")}
    jobs.refresh_weights(settings)
    assert works["refresh"].done == PROJECTS
    assert not list(jobs_checks(settings))


def test_the_doctor_makes_no_control_state(tmp_path: Path) -> None:
    assert not list(jobs_checks(Settings(data_dir=tmp_path)))
    assert not list(tmp_path.iterdir())
