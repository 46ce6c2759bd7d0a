"""What the doctor says: one finding a check."""

from __future__ import annotations

import msgspec


class Check(msgspec.Struct):
    """One finding: ``ok``, ``note`` (works, but know it) or ``bad``, with the mend."""

    name: str
    state: str
    finding: str
    mend: str = ""
