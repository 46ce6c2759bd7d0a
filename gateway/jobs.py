"""The jobs' process: alerts every few seconds, weights every few minutes, the night and the training once a day."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from functools import partial

from apscheduler.schedulers.background import BackgroundScheduler

from analytics import nightly
from analytics.alerts import Evaluator
from analytics.tables import Tables
from collector.control import Control
from gateway.faults import guarded
from pickwise.settings import Settings
from ranker import train, weights


def run(settings: Settings) -> None:
    """Run the scheduler until SIGTERM or SIGINT; a running job is finished first. Raises RuleError at once."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    scheduler = BackgroundScheduler(timezone=UTC, job_defaults={"coalesce": True, "max_instances": 1})
    evaluator = Evaluator(settings.data_dir, settings)
    now = datetime.now(UTC)
    hour, minute = settings.nightly_at.split(":")
    scheduler.add_job(evaluator.evaluate, "interval", seconds=settings.alert_interval_s, next_run_time=now)
    scheduler.add_job(refresh_weights, "interval", [settings], seconds=settings.weights_refresh_s, next_run_time=now)
    scheduler.add_job(night, "cron", [settings], hour=int(hour), minute=int(minute), misfire_grace_time=None)
    scheduler.add_job(catch_up, "date", [settings], run_date=now)
    scheduler.start()
    stop.wait()
    scheduler.shutdown(wait=True)


def refresh_weights(settings: Settings) -> None:
    _each_project(settings, "weights", lambda project: weights.refresh(settings.data_dir, settings, project))


def catch_up(settings: Settings) -> None:
    """Nights that were missed while nothing ran."""
    _each_project(settings, "nightly", lambda project: nightly.run(settings.data_dir, settings, project=project))


def night(settings: Settings) -> None:
    """The nightly job, then the training of every project."""
    catch_up(settings)
    _each_project(settings, "train", lambda project: train.train(settings.data_dir, settings, project=project))


def _each_project(settings: Settings, job: str, run: Callable[[str], object]) -> None:
    """One project's fault does not stop the others."""
    with closing(Control(settings.data_dir)) as control:
        for project in Tables(settings.data_dir).projects():
            guarded(control, job, project, partial(run, project))
