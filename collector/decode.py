"""From a log record to facts by project, the same way each time: the door has already judged the very same bytes."""

from __future__ import annotations

import re
from typing import Literal, cast

from collector import mapping, otlp
from collector.events_in import Layout, parse_events
from collector.facts import Facts
from collector.segment import Record
from pickwise.events import DEFAULT_PROJECT
from pickwise.settings import Settings

#: What a project may be called: its name is a folder of the tables.
PROJECT_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


def is_project(name: str) -> bool:
    return PROJECT_NAME.fullmatch(name) is not None and name not in (".", "..")


def decode_facts(record: Record, settings: Settings) -> dict[str, Facts]:
    """The facts of a record of kind `traces`, `logs` or `events`, by project.

    The project that the request named decides, then the one that a resource names, then `default`.
    """
    header = record.header
    match header.kind:
        case "events":
            by_project = {"": parse_events(record.body, cast(Layout, header.encoding)).facts}
        case "traces":
            traces = otlp.parse_traces(record.body, _encoding(header.encoding))
            by_project = mapping.map_traces(traces, header.received_at, settings)
        case "logs":
            logs = otlp.parse_logs(record.body, _encoding(header.encoding))
            by_project = mapping.map_logs(logs, header.received_at, settings)
        case _:
            raise ValueError(f"a record of kind {header.kind} holds no facts")
    return _settled(by_project, header.project)


def _encoding(encoding: str) -> Literal["protobuf", "json"]:
    return cast(Literal["protobuf", "json"], encoding)


def _settled(by_project: dict[str, Facts], named: str) -> dict[str, Facts]:
    settled: dict[str, Facts] = {}
    for found, facts in by_project.items():
        project = named or (found if is_project(found) else DEFAULT_PROJECT)
        if project in settled:
            settled[project].extend(facts)
        else:
            settled[project] = facts
    return settled
