"""One life of a collector that may be killed at a chosen step: what `bench.crash` starts again and again."""

from __future__ import annotations

import importlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from collector import archive, lake, mapping_pool, upkeep, wal
from collector.service import Collector
from pickwise.settings import Settings

#: Between two batches, so that a life sees many commits, seconds.
_PAUSE_S = 0.02


def live(folder: Path, where: dict[str, Any] | None, batches: list[tuple[str, str, bytes]], out: Connection) -> None:
    """A collector's life: start, take the batches, say what was acknowledged, stop; or die on the way."""
    lake.VACUUM_HOURS = 0  # files go at once, so that a vacuum has something to delete
    defaults = wal.Wal.__init__.__kwdefaults__
    assert defaults is not None
    defaults["segment_age_s"] = 0.05
    upkeep.EVERY_S = 0.2
    archive._MERGE_FROM = 2
    mapping_pool._WORTH_EVENTS = 1
    with _bomb(where):
        processes = where["processes"] if where is not None else 0
        collector = Collector(Settings(data_dir=folder, flush_interval_s=0.05, compact_every=2), processes=processes)
        collector.start()
        for name, kind, body in batches:
            if kind == "traces":
                _, future = collector.submit_traces(body, "protobuf", "p")
            else:
                _, future = collector.submit_events(body, "json", "p")
            assert future is not None
            future.result()
            out.send(name)
            time.sleep(_PAUSE_S)
        collector.refresh(60)
        collector.stop()
    out.close()


@contextmanager
def _bomb(where: dict[str, Any] | None) -> Iterator[None]:
    """Replace the step by one that kills the process, before, after or in the middle of it, at its n-th time."""
    if where is None:
        yield
        return
    module_name, _, path = where["target"].partition(":")
    owner: Any = importlib.import_module(module_name)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    step: Callable[..., Any] | None = getattr(owner, name, None)
    if step is None:
        raise RuntimeError(f"{where['target']} is no more: name the step that took its place")
    count = 0

    def deadly(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        due = count > where["skip"]
        if due and where["partly"]:
            descriptor, parts = args
            data = b"".join(parts)
            os.write(descriptor, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        if due and not where["after"]:
            os.kill(os.getpid(), signal.SIGKILL)
        result = step(*args, **kwargs)
        if due:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, deadly)
    yield
