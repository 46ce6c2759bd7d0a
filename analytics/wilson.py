"""The Wilson score interval (Wilson 1927): how sure a rate is, also with few observations."""

from __future__ import annotations

from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

Z = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


@overload
def wilson(successes: float, n: float) -> tuple[float, float]: ...
@overload
def wilson(successes: NDArray[Any], n: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
def wilson(successes: ArrayLike, n: ArrayLike) -> tuple[Any, Any]:
    """Bounds of the 95 % interval of successes ÷ n; scalars give floats, arrays give arrays.

    n = 0 gives (0, 1): nothing is known. Raises ValueError where successes are not within [0, n].
    """
    hits, total = np.asarray(successes, dtype=np.float64), np.asarray(n, dtype=np.float64)
    if np.any(hits < 0) or np.any(hits > total):
        raise ValueError("successes: expected a count between 0 and n")
    safe = np.maximum(total, 1.0)
    rate, square = hits / safe, Z * Z / safe
    centre = rate + square / 2
    half = Z * np.sqrt(rate * (1 - rate) / safe + square / (4 * safe))
    # Rounding must not push a bound past the rate itself at 0 and 1.
    low = np.where(total == 0, 0.0, np.where(hits == 0, 0.0, np.clip((centre - half) / (1 + square), 0, 1)))
    high = np.where(total == 0, 1.0, np.where(hits == total, 1.0, np.clip((centre + half) / (1 + square), 0, 1)))
    return (float(low), float(high)) if low.ndim == 0 else (low, high)
