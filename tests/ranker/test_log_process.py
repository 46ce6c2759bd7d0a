"""A log read in a process of its own is the log, and the process never stays."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from pickwise.settings import Settings
from ranker import log_process
from ranker.log import read_log
from ranker.log_process import LogProcess
from tests.ranker.conftest import Project


def test_it_reads_what_this_process_would(trained: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_process, "_IDLE_S", 1.0)
    logs = LogProcess(trained.data_dir, trained.settings)
    assert logs.projects() == ["default"]
    process = logs._process
    assert process is not None
    found, expected = logs.read("default"), read_log(trained.data_dir, trained.settings, "default")
    for name in ("selections", "candidates", "calls", "skills", "labels"):
        assert getattr(found, name).equals(getattr(expected, name))
    process.join(30)
    assert process.exitcode is not None  # idle, it has ended
    assert logs.read("default").size == expected.size
    logs.close()


def test_a_fault_is_told_and_one_that_died_starts_again(tmp_path: Path, trained: Project) -> None:
    (tmp_path / "lake").write_text("no folder")
    broken = LogProcess(tmp_path, Settings(data_dir=tmp_path))
    with pytest.raises(Exception, match="lake"):
        broken.read("default")
    broken.close()
    logs = LogProcess(trained.data_dir, trained.settings)
    logs.projects()
    assert logs._process is not None
    psutil.Process(logs._process.pid).kill()
    logs._process.join(10)
    assert logs.projects() == ["default"]
    logs.close()
