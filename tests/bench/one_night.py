"""A night of a month in a process of its own that gets a signal after each so many commits of the lake.

python -m tests.bench.one_night FOLDER DAY SIGNAL COMMITS
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from collector.lake import Lake
from tests.bench.small_month import night


def main() -> None:
    folder, day, signal, commits = Path(sys.argv[1]), *map(int, sys.argv[2:])
    append, done = Lake.append, 0

    def signalled(*args: Any, **kwargs: Any) -> None:
        nonlocal done
        append(*args, **kwargs)
        done += 1
        if done == commits:
            os.kill(os.getpid(), signal)

    Lake.append = signalled  # type: ignore[method-assign]
    night(folder, day)


if __name__ == "__main__":
    main()
