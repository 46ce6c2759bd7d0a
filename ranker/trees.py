"""A trained model's trees through LightGBM's C API: loaded from their text, asked for scores and leaves.

LightGBM's Python package brings pandas, SciPy and scikit-learn along, 130 MiB that no tree needs, and takes longer to
look at 50 candidates than the library takes to score them. The C API:
https://lightgbm.readthedocs.io/en/stable/C-API.html
"""

from __future__ import annotations

import ctypes
import json
import weakref
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranker.decay import Numbers

_FLOAT32, _COLUMN_MAJOR, _ROW_MAJOR = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_int(1)
_SCORES, _LEAVES = ctypes.c_int(0), ctypes.c_int(2)
_FIRST, _ALL = ctypes.c_int(0), ctypes.c_int(-1)


class TreesUnusable(ValueError):  # noqa: N818 - a finding about a text
    """The library refuses; the message is its own."""


class Trees:
    """The trees of one model, asked as a ``lightgbm.Booster`` is. Safe to use from several threads."""

    def __init__(self, text: str) -> None:
        """Raises TreesUnusable."""
        self._text, self._handle, iterations = text, ctypes.c_void_p(), ctypes.c_int()
        _call("LoadModelFromString", text.encode(), ctypes.byref(iterations), ctypes.byref(self._handle))
        weakref.finalize(self, _call, "Free", self._handle)
        self._trees = iterations.value

    def num_trees(self) -> int:
        return self._trees

    def model_to_string(self) -> str:
        return self._text

    def dump_model(self) -> dict[str, Any]:
        """What the trees look like, as the C API documents it."""
        size = ctypes.c_int64(0)
        for _ in range(2):  # the first answer tells the size
            room = ctypes.create_string_buffer(size.value)
            asked = (self._handle, _FIRST, _ALL, ctypes.c_int(0), ctypes.c_int64(len(room)))
            _call("DumpModel", *asked, ctypes.byref(size), room)
        found: dict[str, Any] = json.loads(room.value)
        return found

    def predict(self, matrix: NDArray[np.floating], *, pred_leaf: bool = False, num_threads: int = 1) -> Numbers:
        """A score a row; or the leaf that each row falls into, shape (rows, trees). Raises TreesUnusable."""
        rows, columns = matrix.shape
        by_column = matrix.dtype == np.float32 and matrix.flags.f_contiguous
        asked = matrix if by_column else np.ascontiguousarray(matrix, dtype=np.float32)
        found = np.empty((rows, self._trees) if pred_leaf else rows)
        _call(
            "PredictForMat",
            self._handle,
            ctypes.c_void_p(asked.ctypes.data),
            _FLOAT32,
            ctypes.c_int32(rows),
            ctypes.c_int32(columns),
            _COLUMN_MAJOR if by_column else _ROW_MAJOR,
            _LEAVES if pred_leaf else _SCORES,
            _FIRST,
            _ALL,
            b"num_threads=%d" % num_threads,
            ctypes.byref(ctypes.c_int64()),
            ctypes.c_void_p(found.ctypes.data),
        )
        return found


def _call(name: str, *arguments: Any) -> None:
    library = _library()
    if getattr(library, f"LGBM_Booster{name}")(*arguments) != 0:
        raise TreesUnusable(library.LGBM_GetLastError().decode(errors="replace"))


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    """The library of the installed package, which is not imported."""
    package = find_spec("lightgbm")
    folders = package.submodule_search_locations if package else None
    found = [path for folder in folders or () for path in Path(folder).glob("*/*lightgbm.*") if path.suffix != ".py"]
    library = ctypes.CDLL(str(found[0]))
    library.LGBM_GetLastError.restype = ctypes.c_char_p
    return library
