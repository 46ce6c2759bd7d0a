"""Commands that learn: nightly, train."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated

import typer

from pickwise.cli.options import (
    DEFAULT,
    AsJson,
    DataDir,
    Project,
    UserError,
    console,
    existing,
    print_json,
    remarks,
    settings_from,
    writable,
)
from pickwise.training_text import training_lines


def register(app: typer.Typer) -> None:
    app.command()(nightly)
    app.command()(train)


def nightly(
    data_dir: DataDir = None,
    project: Annotated[str | None, typer.Option("--project", help="only this project (default: all)")] = None,
    day: Annotated[
        datetime | None,
        typer.Option("--date", formats=["%Y-%m-%d"], help="one day again (default: all missed days and today)"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Portraits, implicit feedback and the status of every skill; then the weights, which follow it. Safe to repeat.

    A project that fails stops no other; exit code 1 then, and the reason.
    """
    from gateway import jobs

    settings = writable(existing(settings_from(data_dir=data_dir)))
    summary = jobs.nights(
        settings, project, _past(day), lambda text: remarks.print(f"  {text}", markup=False, soft_wrap=True)
    )
    if as_json:
        print_json(summary)
    else:
        for name, result in summary["projects"].items():
            console.print(name, style="bold", markup=False)
            for key, value in result.items():
                console.print(f"  {key}: {value}", markup=False)
    if summary["failed"]:
        raise UserError("; ".join(f"project {name}: {reason}" for name, reason in summary["failed"].items()))


def _past(day: datetime | None) -> date | None:
    """The day of ``--date``; one of which nothing can be known is refused before any project is looked at."""
    if day is not None and not 0 <= day.replace(tzinfo=UTC).timestamp() <= datetime.now(UTC).timestamp():
        raise UserError(f"--date: expected a day from 1970-01-01 to {datetime.now(UTC):%Y-%m-%d}, got {day:%Y-%m-%d}")
    return None if day is None else day.date()


def train(
    data_dir: DataDir = None,
    project: Project = DEFAULT,
    seed: Annotated[int, typer.Option(help="seed; the same data and seed give the same model")] = 0,
    as_json: AsJson = False,
) -> None:
    """Train a ranking model on what was picked and skipped, and promote it only if the gate lets it through."""
    from collector.control import JobRunning
    from ranker.train import train as run
    from ranker.weights import WeightsStore

    settings = writable(existing(settings_from(data_dir=data_dir)))
    try:
        result = run(
            settings.data_dir,
            settings,
            project=project,
            seed=seed,
            progress=lambda text: remarks.print(f"  {text}"),
        )
    except JobRunning as error:
        raise UserError(str(error)) from error
    if as_json:
        print_json(result)
        return
    decision, *found = training_lines(result)
    console.print(decision, style="bold", markup=False, soft_wrap=True)
    for line in found:
        console.print(line, markup=False, soft_wrap=True)
    running = WeightsStore(settings.data_dir).document(project).canary
    if running is not None:
        console.print(
            f"  canary: {running.version} ranks for {running.fraction:.0%} of the sessions until it is judged"
        )
