"""What a project may be called, its name is a folder of the tables; and which one a span or log record goes to."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

from collector.spans import LogRecord, Span
from pickwise.attributes import PROJECT
from pickwise.events import DEFAULT_PROJECT

PROJECT_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


def is_project(name: str) -> bool:
    return PROJECT_NAME.fullmatch(name) is not None and name not in (".", "..")


def project_folder(data_dir: Path, kind: str, project: str) -> Path:
    """``data_dir/KIND/PROJECT``; whatever a project is called, it stays one folder below KIND."""
    name = quote(project, safe="")
    return Path(data_dir) / kind / (name.replace(".", "%2E") if not name.strip(".") else name)


def project_of(item: Span | LogRecord, named: str) -> str:
    """The project that an item goes to: the one that its request named, its resource's, or `default`."""
    if named:
        return named
    own = item.resource.get(PROJECT)
    return own if isinstance(own, str) and is_project(own) else DEFAULT_PROJECT
