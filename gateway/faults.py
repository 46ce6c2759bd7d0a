"""Jobs whose last run ended in an error: the scheduler remembers them in the control state, the doctor reads them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec

from collector.control import Control, JobRunning

log = logging.getLogger(__name__)

_PREFIX = "fault/"


class Fault(msgspec.Struct):
    """The job and its project; the class of the error alone, as its text may quote what a user wrote; Unix seconds."""

    job: str
    project: str
    error: str
    at: float


def guarded(control: Control, job: str, project: str, run: Callable[[], object]) -> None:
    """Run a project's job. What it raises is logged and remembered until a run ends well, and stops nothing else."""
    key = f"{_PREFIX}{job}/{project}"
    try:
        run()
    except JobRunning as running:
        log.info("%s: left to it", running)
    except Exception as error:
        log.exception("%s of project %s failed", job, project)
        control.put(key, msgspec.to_builtins(Fault(job, project, type(error).__name__, time.time())))
    else:
        if control.get(key) is not None:
            control.put(key, None)


def last_faults(data_dir: Path) -> list[Fault]:
    """By job and project. Makes no control state where there is none."""
    if not (data_dir / "control.sqlite").exists():
        return []
    with closing(Control(data_dir)) as control:
        return [msgspec.convert(found, Fault) for _, found in sorted(control.items(_PREFIX).items())]
