"""What the C library does with the memory of large bodies."""

from __future__ import annotations

import ctypes
from contextlib import suppress

#: Larger blocks go back to the system as soon as they are free.
LARGE_BYTES = 2**20
_M_MMAP_THRESHOLD = -3


def give_large_blocks_back() -> None:
    """Let glibc map each large block by itself, for this process and from now on; elsewhere nothing.

    Left to itself it learns from the first 20 MiB that are freed to keep such blocks, and between them smaller ones
    that hold them in place: under overload that was 100 MiB.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
