"""Commands of labels: import what queries should find, and hold the discovery layer against it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.markup import escape
from rich.progress import track
from rich.table import Table

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
from pickwise.settings import Settings

if TYPE_CHECKING:
    from analytics.labels import Label, LabelStore
    from analytics.labels_evaluate import Judged, Registry
    from discovery.layer import DiscoveryLayer

#: How many skills a query is searched for, and how the arms of recall become one list: the layer's own way.
DEPTH = 10
FUSION: Final = "weighted"
#: Nobody waits for an answer here: what is late is not left out.
_PATIENCE_S = 600.0
_SHOWN = 10

labels_app = typer.Typer(
    no_args_is_help=True,
    help="Which skills queries should find: import, and evaluate the discovery layer against them.",
)


def register(app: typer.Typer) -> None:
    app.add_typer(labels_app, name="labels")


@labels_app.command("import")
def labels_import(
    path: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, metavar="FILE", help="CSV or JSON lines, see docs/labels.md")
    ],
    data_dir: DataDir = None,
    project: Project = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Bring labels in: `query`, `expected` (skill_ids), and perhaps `language` and `cluster`.

    A query that has a label already gets the new one. Importing the same file twice changes nothing.

    Example: `pickwise labels import golden.csv --project shop`
    """
    from analytics.labels import redacted
    from analytics.labels_file import read_labels

    settings = settings_from(data_dir=data_dir)
    found = read_labels(path)
    with _store(settings) as (store, control):
        written = store.put(project, redacted(found.labels, settings, control))
    unknown = _registry(settings, project).unknown(found.labels)
    document = {
        "accepted": len(found.labels),
        "rejected": len(found.problems),
        "added": written.added,
        "changed": written.changed,
        "unchanged": written.unchanged,
        "unknown_skills": unknown,
        "ignored_fields": found.ignored_fields,
        "problems": [str(problem) for problem in found.problems],
    }
    if as_json:
        print_json(document)
    else:
        _print_import(document, project, settings)
    if found.problems and not found.labels:
        raise typer.Exit(1)


def _print_import(document: dict[str, Any], project: str, settings: Settings) -> None:
    console.print(
        f"{document['accepted']:,} accepted ({document['added']:,} new, {document['changed']:,} changed),"
        f" {document['rejected']:,} refused (project {project}, {settings.data_dir})",
        markup=False,
        soft_wrap=True,
    )
    repeated = document["accepted"] - document["added"] - document["changed"] - document["unchanged"]
    if repeated:
        remarks.print(f"  note: {repeated:,} lines have a query that a later line has too, which holds")
    for problem in document["problems"][:_SHOWN]:
        remarks.print(f"  [yellow]refused:[/yellow] {escape(problem)}", soft_wrap=True)
    if document["ignored_fields"]:
        ignored = ", ".join(document["ignored_fields"])
        remarks.print(f"  note: nothing reads the fields {ignored}", markup=False, soft_wrap=True)
    _print_unknown(document["unknown_skills"], project)


def _print_unknown(unknown: Sequence[str], project: str) -> None:
    if unknown:
        named = ", ".join(unknown[:_SHOWN]) + (", …" if len(unknown) > _SHOWN else "")
        remarks.print(
            f"  note: {len(unknown):,} expected skills are not in the registry of project {project},"
            f" so no list can have them: {named}",
            markup=False,
            soft_wrap=True,
        )


@labels_app.command("evaluate")
def labels_evaluate(
    data_dir: DataDir = None,
    project: Project = DEFAULT,
    logged: Annotated[
        bool, typer.Option("--logged", help="the newest logged list of each query, instead of searching anew")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Search every labelled query with the discovery layer as it is now, and say what it finds.

    Recall, MRR and NDCG@10 with bootstrap intervals over queries, by language and cluster, and the queries that fell
    since the last evaluation.
    """
    from analytics import labels_evaluate as evaluation
    from analytics.tables import Tables

    settings = existing(settings_from(data_dir=data_dir))
    tables = Tables(settings.data_dir).connect() if settings.data_dir.exists() else None
    labels = evaluation.labels_of(tables, project) if tables is not None else []
    if tables is None or not labels:
        _say_none(project, as_json)
        return
    registry = _registry(settings, project)
    with _store(settings) as (store, _):
        judged, what = (
            (evaluation.logged(tables, project), {}) if logged else _searched(settings, project, labels, registry)
        )
        document = evaluation.evaluate(tables, store, project, "logged" if logged else "discovery", judged, what)
    document |= {"labels": len(labels), "unknown_skills": registry.unknown(labels)}
    if as_json:
        print_json(document)
    else:
        _print_evaluation(document)


def _say_none(project: str, as_json: bool) -> None:
    if as_json:
        print_json({"project": project, "labels": 0, "n": 0, "metrics": [], "fell": []})
        return
    console.print(
        f"No labels in project {project}. Bring some: `pickwise labels import FILE` (docs/labels.md), or feedback"
        " events of kind `label`.",
        markup=False,
        soft_wrap=True,
    )


def _searched(
    settings: Settings, project: str, labels: Sequence[Label], registry: Registry
) -> tuple[list[Judged], dict[str, Any]]:
    """What the discovery layer finds for each label, and which layer that was."""
    from analytics.labels_evaluate import is_searchable

    searchable = [label for label in labels if is_searchable(label)]
    if not searchable:
        raise UserError("the labels are kept as keyed hashes (store_queries): no query to search; try --logged")
    judged, versions, fallbacks = [], {}, 0
    with _layer(settings, project) as layer:
        for label in track(searchable, "searching", console=remarks, transient=True):
            offered = layer.search(label.query, DEPTH)
            judged.append(registry.judge(label, [candidate.skill_id for candidate in offered.candidates]))
            fallbacks += offered.fallback_reason is not None
            versions = {
                "registry_version": offered.registry_version,
                "embedding_version": offered.embedding_version,
                "weights_version": offered.weights_version,
                "model_version": offered.model_version,
            }
    return judged, {
        "depth": DEPTH,
        "fusion": FUSION,
        **versions,
        "fallbacks": fallbacks,
        "hashed": len(labels) - len(searchable),
    }


@contextmanager
def _layer(settings: Settings, project: str) -> Iterator[DiscoveryLayer]:
    """The discovery layer over the project as it is now; what it does is sent to nobody."""
    from opentelemetry.sdk.trace import TracerProvider

    from discovery.layer import DiscoveryLayer
    from gateway.reading import reading_service
    from pickwise.trace import SelectionTracer
    from ranker.vectors import load_vectors

    with reading_service(settings) as service:
        layer = DiscoveryLayer(
            service.url,
            tracer=SelectionTracer(TracerProvider()),
            embedder=load_vectors(settings.data_dir, settings).embedder,
            project=project,
            api_key=service.api_key,
            fusion=FUSION,
            max_p99_ms=math.inf,
            embed_budget_s=_PATIENCE_S,
            rank_budget_s=_PATIENCE_S,
        )
        try:
            layer.refresh()
            if layer.registry.value is None or not layer.registry.value.skills:
                raise UserError(
                    f"the registry of project {project} has no active skill to search: "
                    f"{layer.registry.error or 'bring one with `pickwise registry import`'}"
                )
            yield layer
        finally:
            layer.close()


def _registry(settings: Settings, project: str) -> Registry:
    from analytics.frames import active_entries
    from analytics.labels_evaluate import Registry
    from analytics.tables import Tables

    return Registry(active_entries(Tables(settings.data_dir).connect(), project=project))


@contextmanager
def _store(settings: Settings) -> Iterator[tuple[LabelStore, Any]]:
    from analytics.labels import LabelStore
    from collector.control import Control

    control = Control(writable(settings).data_dir)
    try:
        yield LabelStore(control), control
    finally:
        control.close()


def _print_evaluation(document: dict[str, Any]) -> None:
    of = "logged lists" if document["source"] == "logged" else "the discovery layer"
    console.print(
        f"{document['n']:,} of {document['labels']:,} labelled queries of project {document['project']}, {of}"
    )
    for name, value in document["what"].items():
        console.print(f"  {name}: {'none' if value is None else value}", markup=False)
    if not document["n"]:
        console.print("No ranked selection of a labelled query was logged.")
        return
    table = Table("", "metric", "value", "95 % interval", "n")
    for row in document["metrics"]:
        table.add_row("all", *_cells(row))
    for group in ("language", "cluster"):
        for row in document[f"by_{group}"]:
            table.add_row(escape(f"{group} {row[group]}"), *_cells(row))
    console.print(table)
    _print_comparison(document)
    _print_unknown(document["unknown_skills"], document["project"])


def _cells(row: dict[str, Any]) -> list[str]:
    name = f"recall@{row['k']}" if row["k"] is not None else row["metric"]
    return [name, f"{row['value']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}", f"{row['n']:,}"]


def _print_comparison(document: dict[str, Any]) -> None:
    previous = document["previous"]
    if previous is None:
        console.print("The first evaluation: the next one is compared with it.")
        return
    if not previous["n_shared"]:
        console.print(f"Nothing in common with the evaluation of {previous['evaluated_at']}.")
        return
    console.print(
        f"Since {previous['evaluated_at']}, over {previous['n_shared']:,} queries that both have:"
        f" {previous['n_fell']:,} fell, {previous['n_rose']:,} rose; NDCG@10 {previous['ndcg_at_10_change']:+.3f}"
        f" (95 %: {previous['low']:+.3f} to {previous['high']:+.3f})",
        soft_wrap=True,
    )
    if not document["fell"]:
        return
    table = Table("fell", "expected", "ranks before", "ranks now", "NDCG@10")
    for row in document["fell"][:_SHOWN]:
        moved = f"{row['ndcg_at_10_before']:.3f} → {row['ndcg_at_10']:.3f}"
        ranks = (", ".join(map(str, row[key])) or "–" for key in ("ranks_before", "ranks"))
        table.add_row(*map(escape, (row["query"], ", ".join(row["expected"]), *ranks, moved)))
    console.print(table)
    if len(document["fell"]) > _SHOWN:
        console.print(f"… and {len(document['fell']) - _SHOWN:,} more: --json has all")
