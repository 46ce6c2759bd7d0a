"""Files to request bodies, so that an import takes the same way in as live traffic.

A line that cannot be taken is reported with its file and number; the rest goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from collector import json_text
from collector.messages import dialogue_events
from pickwise.events import MAX_EVENT_BYTES, EventError, decode_event
from pickwise.settings import Settings
from pickwise.skills import decode_skill

Format = Literal["events", "openai-messages", "otlp-json", "skills"]
Kind = Literal["events", "traces", "logs", "registry"]

#: Batches stay below this, far from the limit of a request.
MAX_BATCH_BYTES = 4 * 1024 * 1024
#: A registry travels in one request where it can: a project's first write holds from the beginning of time.
MAX_REGISTRY_BYTES = 16 * 1024 * 1024


class Problem(msgspec.Struct, frozen=True):
    """A line (of an array: an item) that was left out, and why."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


class Batch(msgspec.Struct, frozen=True):
    """One request body: ``ndjson`` for events and registry entries, OTLP/JSON for traces and logs."""

    kind: Kind
    body: bytes
    encoding: Literal["ndjson", "json"]
    #: Events, entries, or requests (OTLP) in the body.
    count: int


Report = Callable[[Problem], None]
#: A line number with the JSON document on it.
_Line = tuple[int, Any]


def batches(path: Path, format: Format, settings: Settings, report: Report) -> Iterator[Batch]:
    """The file's content as request bodies, in its order. ``report`` is told of each line that is left out.

    Raises OSError when the file cannot be read.
    """

    def refuse(line: int, reason: str) -> None:
        report(Problem(path, line, reason))

    lines = _documents(path, refuse)
    if format == "events":
        yield from _packed("events", _events(lines, refuse), MAX_BATCH_BYTES)
    elif format == "openai-messages":
        yield from _packed("events", _dialogues(lines, settings, refuse), MAX_BATCH_BYTES)
    elif format == "skills":
        yield from _packed("registry", _skills(lines, refuse), MAX_REGISTRY_BYTES)
    else:
        yield from _otlp(lines, refuse)


_Refuse = Callable[[int, str], None]


def _documents(path: Path, refuse: _Refuse) -> Iterator[_Line]:
    """The JSON documents of a file: one a line, or the items of one array, or one document over many lines."""
    with path.open("rb") as file:
        first = file.readline()
        file.seek(0)
        if _is_json(first) and not first.lstrip().startswith(b"["):
            yield from _lines(file, refuse)
            return
        content = file.read()
    try:
        items = json_text.split_array(content)
    except ValueError:
        whole = _is_json(content)
        yield from [(1, json_text.decode(content))] if whole else _lines(content.splitlines(), refuse)
    else:
        yield from _lines(map(bytes, items), refuse, "expected a JSON document")


def _is_json(line: bytes) -> bool:
    try:
        json_text.decode(line)
    except ValueError:
        return False
    return True


def _lines(
    lines: Iterable[bytes], refuse: _Refuse, expected: str = "expected one JSON document a line"
) -> Iterator[_Line]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if len(line) <= MAX_EVENT_BYTES and json_text.is_deep(line):
            refuse(number, f"expected at most {json_text.MAX_DEPTH} levels of nesting")
            continue
        try:
            yield number, json_text.decode(line)
        except ValueError as error:
            refuse(number, f"{expected}: {error}")


def _events(lines: Iterable[_Line], refuse: _Refuse) -> Iterator[bytes]:
    for number, raw in lines:
        try:
            if isinstance(raw, dict) and raw.get("type") == "skill":
                decode_skill(raw)
            else:
                decode_event(raw)
        except EventError as error:
            refuse(number, str(error))
            continue
        encoded = msgspec.json.encode(raw)
        if len(encoded) > MAX_EVENT_BYTES:
            refuse(number, f"expected at most {MAX_EVENT_BYTES} bytes an event, got {len(encoded)}")
            continue
        yield encoded


def _dialogues(lines: Iterable[_Line], settings: Settings, refuse: _Refuse) -> Iterator[bytes]:
    for number, raw in lines:
        try:
            events = dialogue_events(raw, settings)
        except EventError as error:
            refuse(number, str(error))
            continue
        for event in events:
            yield _encoded_within_limit(event)


def _encoded_within_limit(event: dict[str, Any]) -> bytes:
    """The event; where its arguments are too long for one, their names alone."""
    encoded = msgspec.json.encode(event)
    if len(encoded) <= MAX_EVENT_BYTES or "arguments" not in event:
        return encoded
    arguments = event.pop("arguments")
    if isinstance(arguments, dict):
        event["args_keys"] = sorted(arguments)
    return msgspec.json.encode(event)


def _skills(lines: Iterable[_Line], refuse: _Refuse) -> Iterator[bytes]:
    for number, raw in lines:
        try:
            decode_skill(raw)
        except EventError as error:
            refuse(number, str(error))
            continue
        yield msgspec.json.encode(raw)


def _otlp(lines: Iterable[_Line], refuse: _Refuse) -> Iterator[Batch]:
    """One request a line, as the OpenTelemetry Collector's file exporter writes them."""
    for number, document in lines:
        keys = document if isinstance(document, dict) else {}
        kind: Kind | None = "traces" if "resourceSpans" in keys else "logs" if "resourceLogs" in keys else None
        if kind is None:
            refuse(number, f"expected an object with resourceSpans or resourceLogs, got {', '.join(list(keys)[:3])}")
            continue
        try:
            body = msgspec.json.encode(document)
        except RecursionError:
            refuse(number, "expected a request that is not nested so deep")
            continue
        yield Batch(kind, body, "json", 1)


def _packed(kind: Kind, lines: Iterable[bytes], limit: int) -> Iterator[Batch]:
    """Lines joined to bodies below the limit (a single longer line goes alone)."""
    held: list[bytes] = []
    size = 0
    for line in lines:
        if held and size + len(line) + 1 > limit:
            yield Batch(kind, b"\n".join(held) + b"\n", "ndjson", len(held))
            held, size = [], 0
        held.append(line)
        size += len(line) + 1
    if held:
        yield Batch(kind, b"\n".join(held) + b"\n", "ndjson", len(held))
