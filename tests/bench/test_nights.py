"""Nights of a small month: again, missed, killed in the middle, and two at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analytics import nightly
from bench.flags import NIGHT
from collector.control import JobRunning
from collector.lake import Lake
from collector.tables import JOB_TABLES
from pickwise.settings import Settings
from tests.bench.small_month import DAYS, MONTH, NIGHTS, night

LAST = DAYS - 1
NOW = MONTH.first_day + timedelta(days=DAYS) + NIGHT
#: Written by a night; ids of clusters and alerts are made up anew.
TABLES = ("portraits", "feedback", "query_clusters", "skill_status", "alerts")
_MADE_UP = ("computed_at", "received_at", "cluster_id", "alert_id")


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The month's facts, and no night."""
    folder = tmp_path_factory.mktemp("facts")
    MONTH.write(folder)
    return folder


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The month, night by night."""
    folder = tmp_path_factory.mktemp("lived")
    lake = Lake(folder)
    for day in range(DAYS):
        MONTH.write_day(lake, day)
        if day in NIGHTS:
            night(folder, day)
    return folder


@pytest.fixture
def copied(facts: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(facts, tmp_path / "copied"))


def stored(folder: Path, table: str) -> pl.DataFrame:
    rows = Lake(folder).read(table)
    return rows.drop(_MADE_UP, strict=False).sort(pl.all())


def start(folder: Path, number: signal.Signals, commits: int = 1) -> subprocess.Popen[bytes]:
    """A process that lives the last night and gets the signal after so many commits."""
    command = [sys.executable, "-m", "tests.bench.one_night", str(folder), str(LAST), str(int(number)), str(commits)]
    return subprocess.Popen(command)


def test_the_month_has_something_to_find(lived: Path) -> None:
    names = MONTH.skill_names()
    rows = Lake(lived).read("skill_status").select("skill_id", "status", "reason").unique()
    assert {(names[0], "degraded", "failing"), (names[3], "degraded", "surge")} <= set(rows.rows())
    assert (names[12], "observation", "new") in rows.rows()
    assert all(stored(lived, table).height for table in TABLES)


def test_a_second_run_of_any_night_changes_nothing(lived: Path) -> None:
    before = Lake(lived).versions()
    for day in range(DAYS):
        date = (MONTH.first_day + timedelta(days=day)).date()
        nightly.run(lived, Settings(data_dir=lived), project=MONTH.project, date=date, now=NOW)
    night(lived)
    assert Lake(lived).versions() == before


def test_missed_nights_are_made_up_for(lived: Path, copied: Path) -> None:
    """Portraits of a day that was still going on were computed twice: the newest count."""
    night(copied)
    assert stored(copied, "skill_status").equals(stored(lived, "skill_status"))
    alerts = ["rule", "grp", "state", "severity", "started_at", "time"]
    assert stored(copied, "alerts").select(alerts).equals(stored(lived, "alerts").select(alerts))


def test_a_night_that_is_killed_again_and_again_comes_to_the_same(copied: Path, tmp_path: Path) -> None:
    whole = Path(shutil.copytree(copied, tmp_path / "whole"))
    night(whole)
    kills = 0
    # Each life gets a commit further than the one before.
    while (code := start(copied, signal.SIGKILL, kills + 1).wait()) == -signal.SIGKILL:
        kills += 1
    assert code == 0
    assert kills >= 2
    for table in TABLES:
        assert stored(copied, table).equals(stored(whole, table)), table
    assert set(TABLES) < {*JOB_TABLES, "feedback"}


def test_two_at_once_exclude_each_other(copied: Path) -> None:
    with start(copied, signal.SIGSTOP, commits=2) as other:
        _, status = os.waitpid(other.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        before = Lake(copied).versions()
        with pytest.raises(JobRunning, match="nightly is already running for project default"):
            night(copied)
        assert Lake(copied).versions() == before
        other.send_signal(signal.SIGCONT)
        assert other.wait() == 0
    assert night(copied) == []
    evidence: list[dict[str, Any]] = [json.loads(text) for text in Lake(copied).read("skill_status")["evidence"]]
    assert evidence
    assert Lake(copied).read("skill_status").select("skill_id", "time").is_unique().all()
