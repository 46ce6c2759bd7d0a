"""Commands that run: serve and its parts, the demo."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pickwise.cli.options import AsJson, DataDir, UserError, console, print_json, remarks, settings_from
from pickwise.settings import Settings

if TYPE_CHECKING:
    from gateway.supervisor import Supervisor

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
    """Run everything in one go: collector, jobs and dashboard. Ctrl-C or SIGTERM ends them all."""
    from gateway import supervisor

    settings = settings_from(
        data_dir=data_dir,
        host=host,
        http_port=http_port,
        grpc_port=grpc_port,
        dashboard_port=dashboard_port,
        insecure=insecure,
    )
    service, addresses = service_of(
        settings, with_grpc=not no_grpc, with_jobs=not no_jobs, with_dashboard=not no_dashboard
    )
    try:
        service.start()
    except supervisor.StartError as error:
        raise UserError(str(error)) from error
    if as_json:
        print_json(addresses)
    else:
        console.print("[bold]Pickwise is up.[/bold] End it with Ctrl-C.")
        for name, address in addresses.items():
            console.print(f"  {name:<10} {address}", soft_wrap=True, markup=False)
        console.print(f"  {'logs':<10} {settings.data_dir / 'logs'}", soft_wrap=True, markup=False)
        console.print(f"Point an agent at it: export OTEL_EXPORTER_OTLP_ENDPOINT={addresses['http']}", soft_wrap=True)
    sys.stdout.flush()
    try:
        service.run()
    except supervisor.StartError as error:
        raise UserError(str(error)) from error
    remarks.print("Stopped.")


def collect(
    data_dir: DataDir = None,
    host: Host = None,
    http_port: HttpPort = None,
    grpc_port: GrpcPort = None,
    no_grpc: Annotated[bool, typer.Option("--no-grpc", help="without OTLP/gRPC")] = False,
    insecure: Insecure = None,
) -> None:
    """Run the collector and the HTTP API alone."""
    from collector.lock import FolderHeld
    from gateway import collect as process
    from gateway.exposure import ExposedError

    _part()
    settings = settings_from(data_dir=data_dir, host=host, http_port=http_port, grpc_port=grpc_port, insecure=insecure)
    try:
        process.run(settings, grpc=not no_grpc)
    except (FolderHeld, ExposedError, OSError) as error:
        raise UserError(str(error)) from error


def jobs(data_dir: DataDir = None) -> None:
    """Run the scheduler alone: alerts, weights, the nightly job, the training."""
    from gateway import jobs as process

    _part()
    process.run(settings_from(data_dir=data_dir))


def dashboard(
    data_dir: DataDir = None, host: Host = None, dashboard_port: DashboardPort = None, insecure: Insecure = None
) -> None:
    """Run the dashboard alone."""
    import dashboard as package
    from gateway.exposure import ExposedError, refuse_exposed_pages

    settings = settings_from(data_dir=data_dir, host=host, dashboard_port=dashboard_port, insecure=insecure)
    try:
        refuse_exposed_pages(settings)
    except ExposedError as error:
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


def service_of(
    settings: Settings, *, with_grpc: bool = True, with_jobs: bool = True, with_dashboard: bool = True
) -> tuple[Supervisor, dict[str, str]]:
    """The processes of ``serve`` for these settings, and their addresses; a port of 0 becomes a free one."""
    from gateway.exposure import pages_host
    from gateway.supervisor import Part, PortTaken, Supervisor, reserve_port

    def port(number: int, what: str, flag: str, host: str = settings.host) -> int:
        try:
            return reserve_port(host, number, what, flag)
        except PortTaken as error:
            raise UserError(str(error)) from error

    def part(name: str, *arguments: str) -> Part:
        return Part(name, [name, "--data-dir", str(settings.data_dir), *arguments], settings.data_dir / "logs")

    listen = ["--host", settings.host]
    url_host = _in_url(settings.host)
    http = port(settings.http_port, "HTTP", "--http-port")
    grpc = port(settings.grpc_port, "gRPC", "--grpc-port") if with_grpc else 0
    page_host = pages_host(settings)
    pages = port(settings.dashboard_port, "dashboard", "--dashboard-port", page_host) if with_dashboard else 0
    way_in = [*listen, "--http-port", str(http), *(["--grpc-port", str(grpc)] if with_grpc else ["--no-grpc"])]
    exposed = ["--insecure"] if settings.insecure else []
    parts = [part("collect", *way_in, *exposed)]
    addresses = {"http": f"http://{url_host}:{http}"}
    if with_grpc:
        addresses["grpc"] = f"{url_host}:{grpc}"
    if with_jobs:
        parts.append(part("jobs"))
    if with_dashboard:
        parts.append(part("dashboard", "--host", page_host, "--dashboard-port", str(pages), *exposed))
        addresses["dashboard"] = f"http://{_in_url(page_host)}:{pages}"
    addresses["data_dir"] = str(settings.data_dir)
    return Supervisor(parts, f"{addresses['http']}/readyz"), addresses


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _part() -> None:
    """What every long-running part does first: log with times, and end when its supervisor dies."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for chatty in ("alembic", "apscheduler"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    _end_with_supervisor()


def _end_with_supervisor() -> None:
    from gateway.supervisor import SUPERVISED, die_with_parent

    if os.environ.get(SUPERVISED):
        die_with_parent()
