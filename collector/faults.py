"""Why something could not be mapped, in a form that goes between processes."""

from __future__ import annotations

import traceback
from typing import NamedTuple, Self


class Fault(NamedTuple):
    """Why a record, or a part of one, could not be mapped. All but ``kind`` may quote what it holds."""

    kind: str
    reason: str
    traceback: str

    @classmethod
    def of(cls, error: Exception) -> Self:
        name = type(error).__name__
        return cls(name, f"{name}: {error}", "".join(traceback.format_exception(error)))
