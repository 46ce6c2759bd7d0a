"""The main job end to end: register, drive, break, learn, drive again, compare.

The service at ``base_url`` is already up, with its alert evaluator running every few seconds, the rules of
``alert_rules.yaml`` and the receiver's URL among its webhooks; the caller started all that.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from demo.agents import EXAMINATION, Agents, Stage, Turn
from demo.drive import AGENT, Driver, bootstrap_mean, ndcg
from demo.library import library, queries
from demo.outage import BreakableEmbedder
from demo.receiver import AlertReceiver
from demo.report import Comparison, RunReport, Window, compare, compare_healthy, show
from discovery.connection import KEEPALIVE_S
from discovery.layer import DiscoveryLayer
from pickwise.embed import load_embedder
from pickwise.events import RouteState
from pickwise.settings import Settings
from pickwise.trace import SelectionTracer

PROJECT = "default"
#: Part of the logged turns after which the embedding model goes down, and after which a first night falls.
OUTAGE_AT, NIGHT_AT = 0.25, 0.5
#: Turns of the outage at least, and its pace: the evaluator of the alerts needs time to see it.
OUTAGE_TURNS = 150
OUTAGE_TURN_S = 0.03
OUTAGE_LONGEST_S = 30.0
#: The router probes more often than in production, so that recovery fits into a demo.
PROBE_S = 2.0
#: The demo shares its few cores with the service that it measures: slowness is no outage here.
RANK_BUDGET_S = 2.0
MAX_P99_MS = 1_500.0
RESOLVE_LONGEST_S = 60.0
WEIGHTS_LONGEST_S = 60.0
NDCG_QUERIES = 300

FALLBACK_RULE, FIRING, RESOLVED = "fallback_usage", "firing", "resolved"


class Jobs(Protocol):
    """The jobs that the demo asks for, each as the command of that name would run it."""

    def nightly(self) -> Mapping[str, Any]:
        """The nightly job up to now; its summary, with ``projects`` → project → ``status_changes``."""
        ...

    def train(self) -> Mapping[str, Any]:
        """The training; {decision, version, reason, evidence}."""
        ...


def alert_rules_path() -> Path:
    """The rules that the demo's service runs with."""
    return Path(str(files("demo").joinpath("alert_rules.yaml")))


def run(
    base_url: str,
    *,
    data_dir: Path,
    settings: Settings,
    console: Console,
    exit: bool,
    turns: int = 3000,
    after_turns: int = 1000,
    seed: int = 7,
    jobs: Jobs,
    receiver: AlertReceiver | None = None,
) -> RunReport:
    """Run the demo against the service and print what came of it.

    ``receiver`` is the webhook receiver that the service was started with. Raises httpx.HTTPError when the service
    refuses or is gone.
    """
    with ExitStack() as stack:
        limits = httpx.Limits(keepalive_expiry=KEEPALIVE_S)
        http = stack.enter_context(httpx.Client(base_url=base_url, timeout=60.0, limits=limits))
        registered = _register(http)
        console.print(f"Registered {registered} skills at {base_url}; data in {data_dir}")
        stage = _Stage.open(base_url, settings, seed, http, stack)
        report = _play(stage, console, turns, after_turns, jobs)
        report.deliveries = list(receiver.deliveries) if receiver is not None else []
    show(report, console)
    if not exit:
        console.print(f"\nThe service stays up at {base_url}. Try [bold]{base_url}/docs[/bold]. End it with Ctrl-C.")
    return report


@dataclass
class _Stage:
    """What the demo plays with."""

    http: httpx.Client
    layer: DiscoveryLayer
    tracer: SelectionTracer
    evaluation: SelectionTracer
    embedder: BreakableEmbedder
    agents: Agents
    routes: list[str]
    seed: int

    @classmethod
    def open(cls, base_url: str, settings: Settings, seed: int, http: httpx.Client, stack: ExitStack) -> _Stage:
        tracer = _RouteKeeper(endpoint=base_url, agent=AGENT, environment="demo", release="1.0")
        evaluation = SelectionTracer(endpoint=base_url, agent=AGENT, environment="eval", release="1.0")
        for each in (tracer, evaluation):
            stack.callback(each.shutdown)
        embedder = BreakableEmbedder(load_embedder(settings.embedder))
        layer = DiscoveryLayer(
            base_url,
            tracer=tracer,
            embedder=embedder,
            instance="demo",
            poll_s=5.0,
            probe_s=PROBE_S,
            max_p99_ms=MAX_P99_MS,
            rank_budget_s=RANK_BUDGET_S,
            seed=seed,
        )
        stack.callback(layer.close)
        layer.start()
        return cls(http, layer, tracer, evaluation, embedder, Agents(seed), tracer.told, seed)

    def evaluate(self) -> Driver:
        """Turns from now on belong to the environment `eval`, which teaches nothing.

        Their questions are others, and harder, than those before: live traffic would hold that against the new model,
        and take it back.
        """
        self.layer.tracer = self.evaluation
        return Driver(self.layer, self.evaluation, self.agents)

    def settle(self) -> None:
        """Wait until all that was sent is visible in the tables."""
        self.tracer.flush(30.0)
        self.evaluation.flush(30.0)
        self.http.post("/v1/refresh").raise_for_status()


class _RouteKeeper(SelectionTracer):
    """A tracer that also remembers the router's changes, for the report."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.told: list[str] = []

    def route(self, instance: str, state: RouteState, **fields: Any) -> None:
        if not self.told or self.told[-1] != state:
            self.told.append(state)
        super().route(instance, state, **fields)


def _play(stage: _Stage, console: Console, turns: int, after_turns: int, jobs: Jobs) -> RunReport:
    report = RunReport(turns={"logged": turns, "held_out": after_turns}, routes=stage.routes)
    driver = Driver(stage.layer, stage.tracer, stage.agents)
    logged = list(stage.agents.turns(turns, "logged"))
    night = int(turns * NIGHT_AT)
    with _timed(report, "logged turns"):
        start = time.time_ns()
        outage = _Outage(stage, int(turns * OUTAGE_AT))
        _drive(driver, console, logged, slice(0, night), "logged", outage)
        with console.status("Waiting for the embedding model and the router"):
            outage.end()
    _night(stage, console, jobs, report, "first night")
    with _timed(report, "more logged turns"):
        _drive(driver, console, logged, slice(night, turns), "logged")
        before = Window(start, time.time_ns())
    _night(stage, console, jobs, report, "second night")
    with console.status("NDCG@5 of retrieval alone on held-out questions"):
        asked = _held_out_sample(stage.seed)
        retrieval = ndcg(stage.layer, asked, _A_MODEL, learned=False)
    with _timed(report, "training"), console.status("Training the ranking model"):
        report.training = dict(jobs.train())
    with console.status("Waiting for the new model, then NDCG@5 with it"):
        _wait_for_model(stage.layer, report.training)
        learned = ndcg(stage.layer, asked, _A_MODEL, learned=True)
    report.ndcg = Comparison(
        n=len(asked),
        retrieval=bootstrap_mean(retrieval.gains),
        learned=bootstrap_mean(learned.gains),
        difference=bootstrap_mean([new - old for new, old in zip(learned.gains, retrieval.gains, strict=True)]),
        by_model=learned.by_model,
    )
    with _timed(report, "held-out turns"):
        start, driver = time.time_ns(), stage.evaluate()
        _drive(driver, console, list(stage.agents.turns(after_turns, "held_out")), slice(0, after_turns), "held_out")
        after = Window(start, time.time_ns())
        stage.settle()
    with console.status("Waiting for the fallback alert to resolve"):
        _wait_for_alert(stage.http, RESOLVED, RESOLVE_LONGEST_S)
    report.alerts = _alerts(stage.http)
    report.metrics = compare(stage.http, before, after)
    report.healthy = compare_healthy(stage.http, before, after)
    return report


_A_MODEL = next(iter(EXAMINATION))


def _register(http: httpx.Client) -> int:
    entries = library()
    http.put("/v1/registry", json=entries).raise_for_status()
    return len(entries)


def _drive(
    driver: Driver,
    console: Console,
    turns: Sequence[Turn],
    part: slice,
    name: Stage,
    trouble: _Outage | None = None,
) -> None:
    """Drive one part of the turns of a stage, with or without an outage in between."""
    label = f"{name.replace('_', '-')} turns"
    numbers = range(len(turns))[part]
    with _bar(console) as progress:
        task = progress.add_task(label, total=len(numbers))
        for number in numbers:
            if trouble is not None:
                trouble.step(number)
                progress.update(task, description=f"{label}{trouble.note}")
            driver.turn(turns[number], name, number / len(turns))
            progress.advance(task)


def _night(stage: _Stage, console: Console, jobs: Jobs, report: RunReport, name: str) -> None:
    """The nightly job over all that was sent, and its changes of status taking effect in the weights."""
    with _timed(report, name), console.status("Nightly job: portraits, implicit feedback, status of every skill"):
        stage.settle()
        changes = [_with_evidence(stage.http, change) for change in _changes(jobs.nightly())]
        report.status_changes += changes
        newest = {change["skill_id"]: change["status"] for change in changes}
        deadline = time.monotonic() + WEIGHTS_LONGEST_S
        while not _in_effect(stage.layer, newest) and time.monotonic() < deadline:
            time.sleep(0.5)


def _in_effect(layer: DiscoveryLayer, statuses: Mapping[str, str]) -> bool:
    layer.refresh()
    weights = layer.weights.value
    return weights is not None and all(weights.of(skill).status == status for skill, status in statuses.items())


def _with_evidence(http: httpx.Client, change: Mapping[str, Any]) -> dict[str, Any]:
    """The change with the evidence that its row in `skill_status` carries."""
    response = http.get(f"/v1/skills/{change['skill_id']}")
    response.raise_for_status()
    evidence = (response.json()["status"] or {}).get("evidence") or {}
    return dict(change) | {"evidence": json.loads(evidence) if isinstance(evidence, str) else evidence}


class _Outage:
    """Takes the embedding model away until the alert fires, and gives it back."""

    def __init__(self, stage: _Stage, at: int) -> None:
        self._stage = stage
        self._at = at
        self._began = 0.0
        self._next_look = 0.0
        self.note = ""

    def step(self, number: int) -> None:
        """Before each turn."""
        if number == self._at:
            self._began = time.monotonic()
            self._stage.embedder.down = True
            self.note = ", embedding is down"
        if not self._stage.embedder.down:
            return
        time.sleep(OUTAGE_TURN_S)
        if number - self._at >= OUTAGE_TURNS and self._seen():
            self._stage.embedder.down = False
            self.note = ""

    def end(self) -> None:
        """After the last turn: of few turns it lasts longer than they do. Then the router finds the model again."""
        while self._stage.embedder.down:
            self._stage.embedder.down = not self._seen()
            time.sleep(OUTAGE_TURN_S)
        deadline = time.monotonic() + OUTAGE_LONGEST_S
        while self._stage.layer.router.degraded_reason is not None and time.monotonic() < deadline:
            self._stage.layer.search("where is my parcel")  # one of these is the probe
            time.sleep(PROBE_S / 10)

    def _seen(self) -> bool:
        """Whether the alert fires by now; asked once a second, true as well when it took too long."""
        now = time.monotonic()
        if now - self._began > OUTAGE_LONGEST_S:
            return True
        if now < self._next_look:
            return False
        self._next_look = now + 1.0
        return _alert_is(self._stage.http, FIRING)


def _held_out_sample(seed: int) -> list[Any]:
    asked = [query for of_skill in queries(held_out=True).values() for query in of_skill]
    return random.Random(seed).sample(asked, min(NDCG_QUERIES, len(asked)))


def _wait_for_model(layer: DiscoveryLayer, training: Mapping[str, Any]) -> None:
    """Until the service ranks with the promoted model; a training that promoted none changes nothing to wait for."""
    if training.get("decision") != "promoted":
        return
    deadline = time.monotonic() + WEIGHTS_LONGEST_S
    while True:
        layer.refresh()
        ranked_by = layer.search("where is my parcel").model_version
        if ranked_by == training.get("version"):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"model {training['version']} was promoted, the service still ranks with {ranked_by}")
        time.sleep(0.5)


def _wait_for_alert(http: httpx.Client, state: str, longest_s: float) -> None:
    deadline = time.monotonic() + longest_s
    while not _alert_is(http, state) and time.monotonic() < deadline:
        time.sleep(1.0)


def _alert_is(http: httpx.Client, state: str) -> bool:
    return any(alert["rule"] == FALLBACK_RULE and alert["state"] == state for alert in _alerts(http))


def _alerts(http: httpx.Client) -> list[dict[str, Any]]:
    response = http.get("/v1/alerts")
    response.raise_for_status()
    found: list[dict[str, Any]] = response.json()["alerts"]
    return found


def _changes(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(summary["projects"].get(PROJECT, {}).get("status_changes", []))


@contextmanager
def _timed(report: RunReport, what: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    report.seconds[what] = round(time.monotonic() - started, 1)


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )
