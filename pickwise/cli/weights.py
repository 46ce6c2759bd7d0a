"""``pickwise weights``: what is served back and why, its versions, and two of them side by side."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

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
    settings_from,
    writable,
)

weights_app = typer.Typer(
    invoke_without_command=True, help="What is served back: show (the default), history, rollback, interleave."
)


_MEANING = (
    "success: share of calls that were ok, recent ones for more (half-life {success:g} days: what they are now worth), "
    "pulled to the domain's rate by so many calls; 95 % interval. heat: picks against what the ranks explain, 0.5 is "
    "neutral; picks of offers in ranked lists, recent ones for more (half-life {heat:g} days)."
)


def register(app: typer.Typer) -> None:
    app.add_typer(weights_app, name="weights")


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
    rows = explain(settings.data_dir, settings, project, document)
    _say_version(document)
    table = Table()
    for name in ("skill", "status", "success", "interval", "ok calls", "now worth", "pulled to", "heat", "picks"):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*_explained(row))
    if rows:
        console.print(table, markup=False)
        lives = document["half_life_days"]
        console.print(_MEANING.format(success=lives["success"], heat=lives["heat"]), markup=False)
    else:
        console.print("no skill yet")


def _say_version(document: Mapping[str, Any]) -> None:
    model = document["model"]["version"] if document["model"] else "none yet: ordered by score, heat and success"
    console.print(f"version {document['version']}, made {document['created_at']}, model {model}", markup=False)
    canary = document["canary"]
    if canary:
        console.print(
            f"canary {canary['version']} ranks for {canary['fraction']:.0%} of the sessions; "
            "`pickwise weights history` tells how it ends",
            markup=False,
        )


def _explained(row: Mapping[str, Any]) -> tuple[str, ...]:
    """One skill's line: each weight beside what it comes from."""
    status = row["status"] if row["rollout_fraction"] >= 1 else f"{row['status']} {row['rollout_fraction']:.0%}"
    return (
        row["skill_id"],
        f"{status}: {row['status_reason']}" if row["status_reason"] else status,
        f"{row['success']:.3f}",
        f"{row['low']:.2f}–{row['high']:.2f}",
        f"{row['ok']} of {row['calls']}",
        f"{row['n_effective']:.1f}",
        f"{row['prior']:.3f} by {row['kappa']:.0f}",
        f"{row['heat']:.3f}",
        f"{row['picks']:,.0f} of {row['impressions']:,.0f}",
    )


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
    table = Table("at", "version", "action", "model", "canary", "why")
    for row in rows:
        why = (row["evidence"] or {}).get("reason")
        shown = (row["at"], row["version"], row["action"], row["model_version"], row["canary_version"], why)
        table.add_row(*(value or "–" for value in shown))
    console.print(table if rows else "no version yet", markup=False)


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


@weights_app.command("interleave")
def weights_interleave(
    first: Annotated[str | None, typer.Argument(help="a model version from `pickwise weights history`")] = None,
    second: Annotated[str | None, typer.Argument(help="another one")] = None,
    stop: Annotated[bool, typer.Option("--stop", help="rank by one model again")] = False,
    data_dir: DataDir = None,
    project: Project = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Let two models draft each ranked list together, and see whose candidates are picked.

    With two versions it begins, with --stop it ends; alone it reads the verdict so far. Candidates of `/v1/rank` say
    which model chose them in `team`: send that with the selection.
    """
    from ranker import interleave_verdict
    from ranker.weights import WeightsError, WeightsStore

    settings = writable(existing(settings_from(data_dir=data_dir)))
    store = WeightsStore(settings.data_dir)
    if (first is None) != (second is None) or (stop and first is not None):
        raise UserError("expected two versions to begin, --stop to end, or neither to read the verdict")
    try:
        if first is not None and second is not None:
            interleave_verdict.start(settings.data_dir, project, first, second)
        running = store.interleaving(project)
        if running is None:
            raise UserError(f"nothing is interleaved in project {project}: give two versions to begin")
        verdict = interleave_verdict.read(settings.data_dir, settings, project, running)
        if stop:
            store.interleave(project, None)
    except WeightsError as error:
        raise UserError(str(error)) from error
    if as_json:
        print_json(verdict.told() | {"since": running.since, "running": not stop})
        return
    since = datetime.fromtimestamp(running.since, UTC).isoformat(timespec="seconds")
    console.print(f"{running.first} against {running.second}, {'ended; ' if stop else ''}since {since}", markup=False)
    for line in verdict.lines():
        console.print(line, markup=False, soft_wrap=True)
