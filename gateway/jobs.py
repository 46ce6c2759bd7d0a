"""The jobs' process: alerts every few seconds, weights every few minutes, the night and the training once a day."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from apscheduler.schedulers.background import BackgroundScheduler

from analytics import nightly
from analytics.alerts import Evaluator
from analytics.tables import Tables
from collector.control import JobRunning
from pickwise.settings import Settings
from ranker import train, weights

log = logging.getLogger(__name__)


def run(settings: Settings) -> None:
    """Run the scheduler until SIGTERM or SIGINT; a running job is finished first."""
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
    for project in Tables(settings.data_dir).projects():
        weights.refresh(settings.data_dir, settings, project)


def catch_up(settings: Settings) -> None:
    """Nights that were missed while nothing ran."""
    _alone(lambda: nightly.run(settings.data_dir, settings))


def night(settings: Settings) -> None:
    """The nightly job, then the training of every project."""
    _alone(lambda: nightly.run(settings.data_dir, settings))
    for project in Tables(settings.data_dir).projects():
        _alone(partial(train.train, settings.data_dir, settings, project=project))


def _alone(job: Callable[[], object]) -> None:
    try:
        job()
    except JobRunning as error:
        log.info("%s: left to it", error)
