"""Commands that learn: nightly, train, weights."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated

import typer
from rich.table import Table

from pickwise.cli.options import (
    DEFAULT,
    AsJson,
    DataDir,
    Project,
    UserError,
    alone,
    console,
    existing,
    print_json,
    remarks,
    settings_from,
    writable,
)

weights_app = typer.Typer(
    invoke_without_command=True, help="What is served back: show (the default), history, rollback."
)


def register(app: typer.Typer) -> None:
    app.command()(nightly)
    app.command()(train)
    app.add_typer(weights_app, name="weights")


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
    console.print(f"[bold]{result['decision']}[/bold] {result['version'] or ''}: {result['reason']}")
    for key, value in result["evidence"].items():
        console.print(f"  {key}: {value}", markup=False)


@weights_app.callback()
def weights_default(
    context: typer.Context, data_dir: DataDir = None, project: Project = DEFAULT, as_json: AsJson = False
) -> None:
    if alone(context):
        weights_show(data_dir, project, None, as_json)


@weights_app.command("show")
def weights_show(
    data_dir: DataDir = None,
    project: Project = DEFAULT,
    version: Annotated[str | None, typer.Option(help="a version (default: the current one)")] = None,
    as_json: AsJson = False,
) -> None:
    """The weights of every skill, and why."""
    from ranker.explain import explain
    from ranker.weights import WeightsError, WeightsStore

    settings = writable(existing(settings_from(data_dir=data_dir)))
    try:
        document = WeightsStore(settings.data_dir).get(project, version)
    except WeightsError as error:
        raise UserError(str(error)) from error
    if as_json:
        print_json(document)
        return
    model = document["model"]["version"] if document["model"] else "none yet"
    console.print(f"version {document['version']}, made {document['created_at']}, model {model}", markup=False)
    rows = explain(settings.data_dir, settings, project, document)
    table = Table(*(rows[0] if rows else ["(no skill yet)"]))
    for row in rows:
        table.add_row(*("–" if v is None else f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()))
    console.print(table, markup=False)


@weights_app.command("history")
def weights_history(data_dir: DataDir = None, project: Project = DEFAULT, as_json: AsJson = False) -> None:
    """Every version that was served, newest first."""
    from ranker.weights import WeightsStore

    settings = writable(existing(settings_from(data_dir=data_dir)))
    changes = WeightsStore(settings.data_dir).history(project)
    rows = [change | {"at": datetime.fromtimestamp(change["at"], UTC).isoformat()} for change in changes]
    if as_json:
        print_json(rows)
        return
    table = Table(*(rows[0] if rows else ["(no version yet)"]))
    for row in rows:
        table.add_row(*("–" if value is None else str(value) for value in row.values()))
    console.print(table, markup=False)


@weights_app.command("rollback")
def weights_rollback(
    version: Annotated[str, typer.Argument(help="a version from `pickwise weights history`")],
    data_dir: DataDir = None,
    project: Project = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Serve an earlier version again, at once."""
    from ranker.weights import WeightsError, WeightsStore

    store = WeightsStore(writable(existing(settings_from(data_dir=data_dir))).data_dir)
    try:
        document = store.rollback(project, version)
    except WeightsError as error:
        raise UserError(str(error)) from error
    if as_json:
        print_json(document)
    else:
        console.print(f"now serving {document['version']}")
