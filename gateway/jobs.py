"""The jobs' process: alerts every few seconds, weights every few minutes, the night and the training once a day."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, date, datetime
from functools import partial
from typing import Any

from apscheduler.schedulers.background import BackgroundScheduler

from analytics import nightly
from analytics.alerts import Evaluator
from analytics.settle import Settling, is_due, settle
from analytics.tables import Tables
from collector.control import Control, JobRunning
from gateway.faults import guarded
from pickwise.settings import Settings
from ranker import train, weights

log = logging.getLogger(__name__)

#: How often it is looked whether there is much to settle.
_SETTLE_S = 60


def run(settings: Settings) -> None:
    """Run the scheduler until SIGTERM or SIGINT; a running job is finished first. Raises RuleError at once."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    scheduler = BackgroundScheduler(timezone=UTC, job_defaults={"coalesce": True, "max_instances": 1})
    evaluator = Evaluator(settings.data_dir, settings)
    now = datetime.now(UTC)
    hour, minute = settings.nightly_at.split(":")
    scheduler.add_job(settle_due, "interval", [settings], seconds=_SETTLE_S, next_run_time=now)
    scheduler.add_job(evaluator.evaluate, "interval", seconds=settings.alert_interval_s, next_run_time=now)
    scheduler.add_job(refresh_weights, "interval", [settings], seconds=settings.weights_refresh_s, next_run_time=now)
    scheduler.add_job(night, "cron", [settings], hour=int(hour), minute=int(minute), misfire_grace_time=None)
    scheduler.add_job(catch_up, "date", [settings], run_date=now)
    scheduler.start()
    stop.wait()
    scheduler.shutdown(wait=True)


def settle_due(settings: Settings) -> None:
    """What was folded often enough goes into segments, so that readings stay short."""
    if is_due(settings.data_dir):
        with suppress(Settling):
            settle(settings.data_dir, log.info)


def refresh_weights(settings: Settings) -> None:
    _each_project(settings, "weights", lambda project: weights.refresh(settings.data_dir, settings, project))


def catch_up(settings: Settings) -> None:
    """Nights that were missed while nothing ran."""
    _each_project(settings, "nightly", lambda project: nightly.run(settings.data_dir, settings, project=project))


def night(settings: Settings) -> None:
    """The nightly job, then the training of every project."""
    catch_up(settings)
    _each_project(settings, "train", lambda project: train.train(settings.data_dir, settings, project=project))


def nights(settings: Settings, project: str | None, day: date | None, progress: nightly.Progress) -> dict[str, Any]:
    """The nightly job, then the weights, of one project or of all, as an operator asks for them.

    What it did by project, and under `failed` the reason of each that failed: that stops no other.
    """
    summary: dict[str, Any] = {"at": datetime.now(UTC).isoformat(), "projects": {}, "failed": {}}

    def night_of(name: str) -> None:
        found = nightly.run(settings.data_dir, settings, project=name, date=day, progress=progress)
        summary["projects"] |= found["projects"]

    with closing(Control(settings.data_dir)) as control:
        for name in [project] if project is not None else Tables(settings.data_dir).projects():
            error = guarded(control, "nightly", name, partial(night_of, name)) or guarded(
                control, "weights", name, partial(weights.refresh, settings.data_dir, settings, name)
            )
            if error is not None:
                summary["failed"][name] = _reason(error)
    return summary


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, JobRunning) else f"{type(error).__name__}: {error}"


def _each_project(settings: Settings, job: str, run: Callable[[str], object]) -> None:
    """One project's fault does not stop the others."""
    with closing(Control(settings.data_dir)) as control:
        for project in Tables(settings.data_dir).projects():
            error = guarded(control, job, project, partial(run, project))
            if isinstance(error, JobRunning):
                log.info("%s: left to it", error)
            elif error is not None:
                log.error("%s of project %s failed", job, project, exc_info=error)
