"""The processes of ``serve``, from its settings, and the sockets that outlive them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from collector.lock import FolderHeld, holder
from gateway.exposure import pages_host
from gateway.sockets import listening_at
from gateway.supervisor import (
    Answering,
    Part,
    StartError,
    Supervisor,
    bind,
    refuse_same_ports,
    refuse_unknown_host,
    reserve_port,
)
from pickwise.settings import Settings


def service_of(
    settings: Settings, *, with_grpc: bool = True, with_jobs: bool = True, with_dashboard: bool = True
) -> tuple[Supervisor, dict[str, str]]:
    """The service, not yet started, and its addresses; a port of 0 becomes a free one.

    Raises FolderHeld, before anything is written to the logs of who holds the folder, and StartError.
    """
    held_by = holder(settings.data_dir)
    if held_by is not None:
        raise FolderHeld(settings.data_dir, held_by)
    held = ExitStack()
    try:
        return _service(settings, held, with_grpc, with_jobs, with_dashboard)
    except BaseException:
        held.close()
        raise


def addresses_of(settings: Settings, http_port: int, grpc_port: int | None) -> dict[str, str]:
    """Where a collector can be reached."""
    host = _in_url(settings.host)
    addresses = {"http": f"http://{host}:{http_port}"}
    if grpc_port is not None:
        addresses["grpc"] = f"{host}:{grpc_port}"
    return addresses


def no_socket(error: OSError) -> str:
    """What is wrong with the ranker's socket."""
    return f"ranker_socket: can't be listened at ({error}); expected a free path of under 100 characters"


def _service(
    settings: Settings, held: ExitStack, with_grpc: bool, with_jobs: bool, with_dashboard: bool
) -> tuple[Supervisor, dict[str, str]]:
    page_host = pages_host(settings)
    wanted = {"--http-port": settings.http_port}
    if with_grpc:
        wanted["--grpc-port"] = settings.grpc_port
    if with_dashboard:
        wanted["--dashboard-port"] = settings.dashboard_port
    refuse_unknown_host(settings.host)
    refuse_same_ports(wanted)
    # The collector begins to listen; from then on, who comes while it restarts waits instead of being refused.
    door = held.enter_context(bind(settings.host, settings.http_port, "HTTP", "--http-port"))
    http = door.getsockname()[1]
    grpc = reserve_port(settings.host, settings.grpc_port, "gRPC", "--grpc-port") if with_grpc else None
    pages = reserve_port(page_host, settings.dashboard_port, "dashboard", "--dashboard-port") if with_dashboard else 0
    try:
        ranker_at, listener = held.enter_context(listening_at(settings.ranker_socket))
    except OSError as error:
        raise StartError(no_socket(error)) from error

    def part(
        name: str,
        *arguments: str,
        variables: Mapping[str, str] | None = None,
        inherited: int | None = None,
        is_ready: Answering | None = None,
    ) -> Part:
        command = [name, "--data-dir", str(settings.data_dir), *arguments]
        return Part(name, command, settings.data_dir / "logs", variables, inherited, is_ready)

    way_in = ["--host", settings.host, "--http-port", str(http), "--listener", str(door.fileno())]
    way_in += ["--no-grpc"] if grpc is None else ["--grpc-port", str(grpc)]
    exposed = ["--insecure"] if settings.insecure else []
    addresses = addresses_of(settings, http, grpc)
    parts = [
        part(
            "collect",
            *(*way_in, *exposed),
            variables={"PICKWISE_RANKER_SOCKET": str(ranker_at)},
            inherited=door.fileno(),
            is_ready=Answering(f"{addresses['http']}/readyz"),
        ),
        part(
            "ranker",
            *("--listener", str(listener.fileno())),
            inherited=listener.fileno(),
            is_ready=Answering("http://ranker/v1/weights", ranker_at),
        ),
    ]
    if with_jobs:
        linked = ["--host", page_host, "--dashboard-port", str(pages)] if with_dashboard else []
        parts.append(part("jobs", *linked))
    if with_dashboard:
        parts.append(part("dashboard", "--host", page_host, "--dashboard-port", str(pages), *exposed))
        addresses["dashboard"] = f"http://{_in_url(page_host)}:{pages}"
    addresses["data_dir"] = str(settings.data_dir)
    return Supervisor(parts, held), addresses


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
