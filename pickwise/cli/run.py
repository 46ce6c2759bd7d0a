"""Commands that run: serve and its parts, the demo."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pickwise.cli.options import (
    AsJson,
    DataDir,
    UserError,
    console,
    existing,
    print_json,
    remarks,
    settings_from,
    writable,
)
from pickwise.settings import SUPERVISED, Settings

if TYPE_CHECKING:
    pass

Host = Annotated[str | None, typer.Option(help="address to listen on (default 127.0.0.1)")]
HttpPort = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="OTLP/HTTP, JSON and the read API (default 4318; 0: a free one)"),
]
GrpcPort = Annotated[int | None, typer.Option(min=0, max=65535, help="OTLP/gRPC (default 4317; 0: a free one)")]
DashboardPort = Annotated[
    int | None, typer.Option(min=0, max=65535, help="the dashboard (default 8501; 0: a free one)")
]
Insecure = Annotated[
    bool | None, typer.Option("--insecure", help="listen beyond this machine without API keys", show_default=False)
]


def register(app: typer.Typer) -> None:
    app.command()(serve)
    app.command()(collect)
    app.command()(ranker)
    app.command()(jobs)
    app.command()(dashboard)
    app.command()(demo)


def serve(
    data_dir: DataDir = None,
    host: Host = None,
    http_port: HttpPort = None,
    grpc_port: GrpcPort = None,
    dashboard_port: DashboardPort = None,
    no_dashboard: Annotated[bool, typer.Option("--no-dashboard", help="without the dashboard")] = False,
    no_grpc: Annotated[bool, typer.Option("--no-grpc", help="without OTLP/gRPC")] = False,
    no_jobs: Annotated[bool, typer.Option("--no-jobs", help="without alerts, nightly job and training")] = False,
    insecure: Insecure = None,
    as_json: AsJson = False,
) -> None:
    """Run everything in one go: collector, ranker, jobs and dashboard. Ctrl-C or SIGTERM ends them all."""
    from collector.lock import FolderHeld
    from gateway.parts import service_of
    from gateway.supervisor import StartError

    settings = settings_from(
        data_dir=data_dir,
        host=host,
        http_port=http_port,
        grpc_port=grpc_port,
        dashboard_port=dashboard_port,
        insecure=insecure,
    )
    writable(settings)
    try:
        service, addresses = service_of(
            settings, with_grpc=not no_grpc, with_jobs=not no_jobs, with_dashboard=not no_dashboard
        )
    except (FolderHeld, StartError) as error:
        raise UserError(str(error)) from error
    if not no_jobs:
        refuse_wrong_rules(settings)
    service.heed_signals()
    remarks.print(f"Starting; logs in {settings.data_dir / 'logs'}", markup=False, soft_wrap=True)
    try:
        is_up = service.start()
    except StartError as error:
        raise UserError(str(error)) from error
    if not is_up:
        remarks.print("Stopped before it was up.")
        return
    if as_json:
        print_json(addresses)
    else:
        _print_up("Pickwise is up.", addresses | {"logs": str(settings.data_dir / "logs")})
    sys.stdout.flush()
    try:
        service.run()
    except StartError as error:
        raise UserError(str(error)) from error
    remarks.print("Stopped.")


def collect(
    data_dir: DataDir = None,
    host: Host = None,
    http_port: HttpPort = None,
    grpc_port: GrpcPort = None,
    no_grpc: Annotated[bool, typer.Option("--no-grpc", help="without OTLP/gRPC")] = False,
    insecure: Insecure = None,
    listener: Annotated[int | None, typer.Option(hidden=True, help="a socket that serve has bound")] = None,
) -> None:
    """Run the collector and the HTTP API alone."""
    import socket

    from collector.lock import FolderHeld
    from gateway import collect as process
    from gateway.exposure import ExposedError
    from gateway.supervisor import StartError

    _part()
    settings = settings_from(data_dir=data_dir, host=host, http_port=http_port, grpc_port=grpc_port, insecure=insecure)
    writable(settings)
    door = None if listener is None else socket.socket(fileno=listener)
    try:
        process.run(settings, _Told(settings), grpc=not no_grpc, listener=door)
    except (FolderHeld, ExposedError, StartError, OSError) as error:
        raise UserError(str(error)) from error


class _Told:
    """Says where the collector listens, and that it ends."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def listening(self, http_port: int, grpc_port: int | None) -> None:
        from gateway.parts import addresses_of

        addresses = addresses_of(self._settings, http_port, grpc_port)
        _print_up("The collector is up.", addresses | {"data_dir": str(self._settings.data_dir)})
        sys.stdout.flush()

    def stopping(self) -> None:
        remarks.print("stopping: committing what was acknowledged")


def ranker(
    data_dir: DataDir = None,
    ranker_socket: Annotated[
        Path | None, typer.Option("--ranker-socket", help="Unix socket to listen at, for `collect` with the same one")
    ] = None,
    listener: Annotated[int | None, typer.Option(hidden=True, help="a socket that serve listens at")] = None,
) -> None:
    """Run the ranker's service alone: weights, ranks and recall for `collect` to pass on."""
    import socket

    # Its products are small: threads would only wait for each other.
    os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    from gateway import ranking as process
    from gateway.parts import no_socket
    from gateway.sockets import listening_at

    _part()
    settings = existing(settings_from(data_dir=data_dir, ranker_socket=ranker_socket))
    if listener is not None:
        process.run(settings, socket.socket(fileno=listener))
        return
    if settings.ranker_socket is None:
        raise UserError("ranker_socket: expected a path, give one with --ranker-socket")
    with ExitStack() as open_socket:
        try:
            _, listening = open_socket.enter_context(listening_at(settings.ranker_socket))
        except OSError as error:
            raise UserError(no_socket(error)) from error
        process.run(settings, listening)


def _print_up(headline: str, addresses: dict[str, str]) -> None:
    console.print(f"[bold]{headline}[/bold] End it with Ctrl-C.")
    for name, address in addresses.items():
        console.print(f"  {name:<10} {address}", soft_wrap=True, markup=False)
    console.print(f"Point an agent at it: export OTEL_EXPORTER_OTLP_ENDPOINT={addresses['http']}", soft_wrap=True)


def jobs(data_dir: DataDir = None, host: Host = None, dashboard_port: DashboardPort = None) -> None:
    """Run the scheduler alone: alerts, weights, the nightly job, the training.

    Notifications link to the dashboard of that host and port.
    """
    from gateway import jobs as process

    _part()
    settings = writable(settings_from(data_dir=data_dir, host=host, dashboard_port=dashboard_port))
    refuse_wrong_rules(settings)
    process.run(settings)


def refuse_wrong_rules(settings: Settings) -> None:
    """Raises UserError for a file of alert rules that can't be used, before anything is started for it."""
    from analytics.rules import RuleError, load_rules

    try:
        load_rules(settings.alert_rules)
    except RuleError as error:
        raise UserError(f"settings: alert_rules: {error}") from error


def dashboard(
    data_dir: DataDir = None, host: Host = None, dashboard_port: DashboardPort = None, insecure: Insecure = None
) -> None:
    """Run the dashboard alone."""
    import dashboard as package
    from gateway.exposure import ExposedError, refuse_exposed_pages
    from gateway.supervisor import StartError, refuse_unknown_host, reserve_port

    settings = existing(settings_from(data_dir=data_dir, host=host, dashboard_port=dashboard_port, insecure=insecure))
    try:
        refuse_unknown_host(settings.host)
        refuse_exposed_pages(settings)
        reserve_port(settings.host, settings.dashboard_port, "dashboard", "--dashboard-port")
    except (ExposedError, StartError) as error:
        raise UserError(str(error)) from error
    os.environ["PICKWISE_DATA_DIR"] = str(settings.data_dir.resolve())
    arguments = {
        "server.address": settings.host,
        "server.port": settings.dashboard_port,
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "minimal",
    }
    command = [sys.executable, "-m", "streamlit", "run", str(Path(package.__file__).parent / "app.py")]
    # exec, so that signals reach the server itself; the wish to end with the supervisor survives it
    _end_with_supervisor()
    os.execv(sys.executable, [*command, *(f"--{name}={value}" for name, value in arguments.items())])


def demo(
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="an empty folder to keep (default: a new temporary one)")
    ] = None,
    leave: Annotated[bool, typer.Option("--exit", help="end when the table is printed")] = False,
    turns: Annotated[int, typer.Option(help="turns that are logged and learned from", min=200)] = 3000,
    after_turns: Annotated[int, typer.Option(help="turns on held-out queries afterwards", min=100)] = 1000,
    seed: Annotated[int, typer.Option(help="seed of the simulated agents")] = 7,
) -> None:
    """Run the main job end to end: a service, a tool library, simulated agents, the jobs, the training.

    Uses a folder and ports of its own. Without --exit the service stays up afterwards.
    """
    from pickwise.cli.demo import run_demo

    run_demo(data_dir, leave=leave, turns=turns, after_turns=after_turns, seed=seed)


def _part() -> None:
    """What every long-running part does first: log with times, and end when its supervisor dies."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for chatty in ("alembic", "apscheduler"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    _end_with_supervisor()


def _end_with_supervisor() -> None:
    from gateway.supervisor import die_with_parent

    if os.environ.get(SUPERVISED):
        die_with_parent()
