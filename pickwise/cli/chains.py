"""The command that shows chains: skills that successful sessions run one right after the other."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from pickwise.cli.options import (
    DEFAULT,
    AsJson,
    DataDir,
    From,
    Project,
    To,
    console,
    existing,
    print_json,
    settings_from,
    window,
)

#: As ``analytics.chains.MIN_SUPPORT``, which is not loaded for a help page; a test holds them equal.
MIN_SUPPORT = 0.05


def register(app: typer.Typer) -> None:
    app.command()(chains)


def chains(
    data_dir: DataDir = None,
    project: Project = DEFAULT,
    start: From = None,
    to: To = None,
    min_support: Annotated[
        float, typer.Option("--min-support", min=0, max=1, help="least share of the successful sessions with the chain")
    ] = MIN_SUPPORT,
    as_json: AsJson = False,
) -> None:
    """Skills that successful sessions run one right after the other, as candidates for templates.

    Example: `pickwise chains --project shop --min-support 0.1`
    """
    from analytics.chains import chains as find
    from analytics.tables import Tables

    settings = existing(settings_from(data_dir=data_dir))
    begin, end = window(start, to)
    document = find(
        Tables(settings.data_dir).connect(),
        project,
        begin,
        end,
        min_support=min_support,
        excluded=settings.excluded_environments,
    )
    if as_json:
        print_json(document)
    else:
        _print(document)


def _print(document: dict[str, Any]) -> None:
    judged, successful = document["judged"], document["successful"]
    if not judged:
        console.print("No session is known to have succeeded or failed: see docs/chains.md.", markup=False)
        return
    console.print(f"{successful:,} of {judged:,} sessions succeeded ({successful / judged:.1%}).", markup=False)
    if not document["chains"]:
        console.print("No chain is frequent among them; a lower --min-support shows rarer ones.", markup=False)
        return
    table = Table("chain", "sessions", "support", "confidence", "lift", "success", "95 % interval", "n", "feasible")
    for chain in document["chains"]:
        table.add_row(*_cells(chain))
    console.print(table, markup=False)


def _cells(chain: dict[str, Any]) -> list[str]:
    from analytics.plain import plain

    return [
        plain(" → ".join(chain["skills"])),
        f"{chain['sessions']:,}",
        f"{chain['support']:.3f}",
        f"{chain['confidence']:.3f}",
        f"{chain['lift']:.2f}",
        f"{chain['success']:.3f}",
        f"{chain['low']:.3f} to {chain['high']:.3f}",
        f"{chain['n']:,}",
        plain(_feasible(chain)),
    ]


def _feasible(chain: dict[str, Any]) -> str:
    """The verdict: why not, or what is not known (the JSON says why)."""
    because = [check for check in chain["checks"] if check["verdict"] == chain["feasible"]]
    told = [check["reason"] if chain["feasible"] == "no" else check["check"] for check in because]
    return f"{chain['feasible']} ({'; '.join(told)})" if told else str(chain["feasible"])
