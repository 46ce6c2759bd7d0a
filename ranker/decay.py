"""Sums that forget: each amount counts d = 2^(-age / H), the age taken when the sum is read.

Amounts are stored scaled to one reference time, so adding is commutative: a fact that arrives late counts exactly
as if it had come in order, and nothing has to be visited as time goes by.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

DAY_S = 86_400.0
#: The reference moves forward after so many half-lives, long before 2^x overflows.
_REBASE_HALF_LIVES = 60.0


class DecayedSums:
    """A growing table of decayed sums: one row a key, ``width`` numbers a row. Times are Unix seconds."""

    def __init__(self, half_life_days: float, width: int = 1, dtype: type[np.floating] = np.float64) -> None:
        self._half_life_s = half_life_days * DAY_S
        self._reference: float | None = None
        self._sums = np.zeros((0, width), dtype=dtype)

    @property
    def cells(self) -> int:
        """How many numbers it holds."""
        return self._sums.size

    def grow(self, rows: int) -> None:
        """Make room for at least ``rows`` rows."""
        have, width = self._sums.shape
        if rows > have:
            grown = np.zeros((max(rows, 2 * have, 64), width), dtype=self._sums.dtype)
            grown[:have] = self._sums
            self._sums = grown

    def add(self, row: int, column: int, time: float, amount: float = 1.0) -> None:
        weight = self._weight(time)  # may rescale the sums, so it comes first
        self._sums[row, column] += amount * weight

    def add_vector(self, row: int, time: float, amounts: NDArray[np.floating]) -> None:
        weight = self._sums.dtype.type(self._weight(time))
        self._sums[row] += amounts * weight

    def add_many(self, rows: NDArray[np.intp], columns: NDArray[np.intp], time: float) -> None:
        """Add 1 at each (row, column); the pairs are distinct."""
        weight = self._weight(time)
        self._sums[rows, columns] += weight

    def scaled(self, rows: NDArray[np.intp] | int) -> NDArray[np.floating]:
        """The rows up to a common positive factor: enough where only directions or ratios count."""
        found: NDArray[np.floating] = self._sums[rows]
        return found

    def at(self, rows: NDArray[np.intp] | slice | int, now: float) -> Numbers:
        """The decayed sums of those rows as of ``now``."""
        return np.asarray(self._sums[rows] * np.float64(self.factor(now)))

    def factor(self, now: float) -> float:
        """What ``scaled`` sums are to be multiplied by, as of ``now``."""
        return 1.0 if self._reference is None else 2.0 ** ((self._reference - now) / self._half_life_s)

    def _weight(self, time: float) -> float:
        if self._reference is None:
            self._reference = time
        exponent = (time - self._reference) / self._half_life_s
        if exponent > _REBASE_HALF_LIVES:
            self._sums *= self._sums.dtype.type(2.0**-exponent)
            self._reference, exponent = time, 0.0
        return float(2.0**exponent)
