"""What a project may be called: its name is a folder of the tables."""

from __future__ import annotations

import re

PROJECT_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


def is_project(name: str) -> bool:
    return PROJECT_NAME.fullmatch(name) is not None and name not in (".", "..")
