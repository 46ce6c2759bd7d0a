"""What a service and all the processes that it started take of the machine."""

from __future__ import annotations

import psutil


def tree(pid: int) -> list[psutil.Process]:
    """The process and all that it started; empty once it is gone."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def rss_mib(pid: int) -> float:
    """Resident memory of the tree, MiB; pages that processes share count for each."""
    total = 0
    for process in tree(pid):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total / 2**20


def cpu_s(pid: int) -> float:
    """Processor time that the tree has used, seconds."""
    total = 0.0
    for process in tree(pid):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total
