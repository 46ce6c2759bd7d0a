"""A collector that dies in the middle of an operation, by kill -9 of its own process:

    python -m tests.collector.dying DATA_DIR (replay | forget SESSION) METHOD N

``METHOD`` is a method of the lake or the archive (`Lake.replace`, `Lake.purge`, `Archive.rewrite`); the process dies
before its Nth call returns, after it has done its work, or with a negative N before it has begun it.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from collector import replay, rows
from collector.archive import Archive
from collector.lake import Lake
from collector.operations import ReplayRequest
from collector.service import Collector
from pickwise.settings import Settings

_OWNERS = {"Lake": Lake, "Archive": Archive}


def die_in(method: str, number: int) -> None:
    owner_name, _, name = method.partition(".")
    owner: Any = _OWNERS[owner_name]
    real = getattr(owner, name)
    calls = 0

    def dying(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if -calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = real(*arguments, **named)
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(owner, name, dying)


def main() -> None:
    data_dir, what, *rest = sys.argv[1:]
    method, number = rest[-2:]
    collector = Collector(Settings(data_dir=Path(data_dir), archive_days=10_000))
    collector.start()
    die_in(method, int(number))
    if what == "replay":
        rows.MAPPING_VERSION = replay.MAPPING_VERSION = "mended"  # type: ignore[attr-defined]
        collector.replay(ReplayRequest()).result(60)
    else:
        collector.forget("p", rest[0]).result(60)
    collector.stop()


if __name__ == "__main__":
    main()
