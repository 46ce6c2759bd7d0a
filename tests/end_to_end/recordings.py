"""The recorded exports as one installation sees them: a project each, all in one data folder."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

from collector.service import Collector, OtlpEncoding
from pickwise.settings import Settings


class Request(NamedTuple):
    """One recorded body: ``signal`` is `traces` or `logs`."""

    signal: str
    encoding: OtlpEncoding
    body: bytes


#: Recordings of this project's own, gzipped.
OWN = Path(__file__).parents[1] / "collector" / "mapping" / "recordings"


def names(shared: Path) -> list[str]:
    """Every configuration that was recorded, as its path below the recordings."""
    return sorted(
        {
            str(path.parent.relative_to(root))
            for root in (shared / "otlp", OWN)
            for path in root.rglob("*")
            if _is_body(path)
        }
    )


def requests_of(shared: Path, name: str) -> list[Request]:
    """The bodies of a recording, in the order they were sent."""
    folder = next(folder for folder in (OWN / name, shared / "otlp" / name) if folder.is_dir())
    return [_request(file) for file in sorted(folder.iterdir()) if _is_body(file)]


def _is_body(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith((".bin", ".json"))


def _request(file: Path) -> Request:
    signal = "logs" if "-logs" in file.name else "traces"
    body = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return Request(signal, "json" if ".json" in file.suffixes else "protobuf", body)


def project_of(name: str) -> str:
    """A recording's name as a project may be called."""
    return name.replace("/", "_").replace("+", "_")[-64:]


def take(data_dir: Path, traffic: Iterable[tuple[str, Request]]) -> None:
    """Bring requests (project, request) in through a collector on the folder, and wait until they are visible."""
    collector = Collector(Settings(data_dir=data_dir))
    collector.start()
    try:
        for future in [_submit(collector, project, request) for project, request in traffic]:
            if future is not None:
                future.result(60)
        assert collector.refresh(120)
    finally:
        collector.stop()


def _submit(collector: Collector, project: str, request: Request) -> Future[int] | None:
    submit = collector.submit_logs if request.signal == "logs" else collector.submit_traces
    parsed, future = submit(request.body, request.encoding, project)
    assert parsed.rejected == 0, parsed.message
    return future
