"""Jobs whose last run ended in an error: who runs them remembers them in the control state, the doctor reads them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec

from collector.control import Control, JobRunning

_PREFIX = "fault/"


class Fault(msgspec.Struct):
    """The job and its project; the class of the error alone, as its text may quote what a user wrote; Unix seconds."""

    job: str
    project: str
    error: str
    at: float


def guarded(control: Control, job: str, project: str, run: Callable[[], object]) -> Exception | None:
    """Run a project's job. What it raises is returned and remembered until a run ends well, and stops nothing else.

    That the job runs elsewhere (JobRunning) is returned too, but no fault to remember.
    """
    key = f"{_PREFIX}{job}/{project}"
    try:
        run()
    except JobRunning as running:
        return running
    except Exception as error:  # noqa: BLE001 - whatever it is, the other projects go on
        control.put(key, msgspec.to_builtins(Fault(job, project, type(error).__name__, time.time())))
        return error
    if control.get(key) is not None:
        control.put(key, None)
    return None


def last_faults(data_dir: Path) -> list[Fault]:
    """By job and project. Makes no control state where there is none."""
    if not (data_dir / "control.sqlite").exists():
        return []
    with closing(Control(data_dir)) as control:
        return [msgspec.convert(found, Fault) for _, found in sorted(control.items(_PREFIX).items())]
