"""Files of labels: CSV with a header, JSON lines, or one JSON array. A line that is no label is told and left out."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from analytics.labels import Label
from collector import json_text

#: Names of the fields, the first of each as the documents have it.
QUERY, EXPECTED, LANGUAGE, CLUSTER = "query", "expected", "language", "cluster"
NAMES = {
    QUERY: ("query",),
    EXPECTED: ("expected", "expected_skills", "relevant"),
    LANGUAGE: ("language",),
    CLUSTER: ("cluster", "tag"),
}
MAX_EXPECTED = 200
MAX_SKILL_CHARS = 512
MAX_LINE_BYTES = 64 * 1024
#: Lines that one quoted cell may go over: one that nobody closed must not take the rest of the file.
_MAX_CELL_LINES = 100
_SEPARATORS = re.compile(r"[;|,\n]")
_NOT_UTF8 = re.compile("[\ud800-\udfff]")
_CSV = (".csv",)
_JSON = (".jsonl", ".ndjson", ".json")


class Problem(msgspec.Struct, frozen=True):
    """A line (of an array: an item) that was left out, and why; the reason starts with the field where one is wrong."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


class LabelFile(msgspec.Struct, frozen=True):
    """What a file holds: its labels, what was left out, and fields that nothing reads."""

    labels: list[Label]
    problems: list[Problem]
    ignored_fields: list[str]


class _LineError(ValueError):
    """Says which field of a line is wrong, and what was expected."""


#: A line number and what stands there, or why that cannot be read.
_Row = tuple[int, Mapping[str, Any] | _LineError]


def read_labels(path: Path) -> LabelFile:
    """The labels of a file, in its order. Raises OSError when it cannot be read."""
    content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    labels: list[Label] = []
    problems: list[Problem] = []
    ignored: dict[str, None] = {}
    known = {name for names in NAMES.values() for name in names}
    for line, row in _rows(path, content):
        try:
            if isinstance(row, _LineError):
                raise row
            labels.append(_label(row))
        except _LineError as error:
            problems.append(Problem(path, line, str(error)))
        else:
            ignored |= dict.fromkeys(name for name in row if name not in known)
    return LabelFile(labels, problems, list(ignored))


def _rows(path: Path, content: bytes) -> Iterator[_Row]:
    suffix = path.suffix.lower()
    is_json = suffix in _JSON or (suffix not in _CSV and content.lstrip()[:1] in (b"{", b"["))
    return _json_rows(content) if is_json else _csv_rows(content)


def _json_rows(content: bytes) -> Iterator[_Row]:
    try:
        items: Iterable[bytes] = map(bytes, json_text.split_array(content))
    except ValueError:
        items = content.splitlines()
    for line, item in enumerate(items, start=1):
        if item.strip():
            yield line, _object(item)


def _object(item: bytes) -> Mapping[str, Any] | _LineError:
    if len(item) > MAX_LINE_BYTES:
        return _LineError(f"expected at most {MAX_LINE_BYTES} bytes a line, got {len(item)}")
    try:
        found = msgspec.json.decode(item)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _LineError(f'expected a JSON object such as {{"query": "…", "expected": ["…"]}} on each line: {error}')
    return found if isinstance(found, dict) else _LineError(f"expected a JSON object, got {_said(found)}")


def _csv_rows(content: bytes) -> Iterator[_Row]:
    lines = [line.decode("utf-8", "surrogateescape") for line in content.splitlines(keepends=True)]
    number, header = _next_record(lines, 0) if lines else (0, [])
    if isinstance(header, _LineError):
        yield 1, header
        return
    names = [name.strip().lower() for name in header]
    missing = [field for field in (QUERY, EXPECTED) if not set(NAMES[field]) & set(names)]
    if missing:
        yield (
            1,
            _LineError(
                f"{missing[0]}: expected a header with the columns query, expected and perhaps language, cluster;"
                f" got {_said(', '.join(names)):.120}"
            ),
        )
        return
    while number < len(lines):
        start = number
        number, cells = _next_record(lines, start)
        if isinstance(cells, _LineError):
            yield start + 1, cells
        elif cells:
            yield start + 1, _record(names, cells)


def _next_record(lines: list[str], start: int) -> tuple[int, list[str] | _LineError]:
    """The cells of the record that begins on a line, and the line behind it.

    A record that cannot be read ends with its first line, so that those below it are read for themselves.
    """
    reason = "it is never closed"
    for end in range(start + 1, min(start + 1 + _MAX_CELL_LINES, len(lines) + 1)):
        try:
            records = list(csv.reader(lines[start:end], strict=True))
        except csv.Error as error:
            if "unexpected end" in str(error):
                continue
            reason = str(error)
            break
        return end, records[0] if records else []
    return start + 1, _LineError(f"expected cells with commas between them, a quoted one closed by its quote: {reason}")


def _record(names: list[str], cells: list[str]) -> Mapping[str, Any] | _LineError:
    if len(cells) != len(names):
        return _LineError(f"expected {len(names)} cells ({', '.join(names)}), got {len(cells)}")
    row: dict[str, Any] = {name: cell for name, cell in zip(names, cells, strict=True) if cell.strip()}
    for name in NAMES[EXPECTED]:
        if name in row:
            row[name] = _skills_of_cell(row[name])
    return row


def _skills_of_cell(cell: str) -> list[Any]:
    """Skills with `;`, `|` or `,` between them, or a JSON list for those whose ids have such a character."""
    if cell.lstrip().startswith("["):
        try:
            found = json.loads(cell)
        except ValueError:
            return [cell]
        return found if isinstance(found, list) else [found]
    return [part.strip() for part in _SEPARATORS.split(cell) if part.strip()]


def _label(row: Mapping[str, Any]) -> Label:
    query = _field(row, QUERY)
    if not isinstance(query, str) or not query.strip():
        raise _LineError(f"query: expected a text, got {_said(query)}")
    return Label(
        query=_text(QUERY, query),
        expected=_expected(_field(row, EXPECTED)),
        language=_optional(row, LANGUAGE),
        cluster=_optional(row, CLUSTER),
    )


def _expected(value: Any) -> tuple[str, ...]:
    skills = [value] if isinstance(value, str) else value
    if not isinstance(skills, list) or not skills:
        raise _LineError(f"expected: expected at least one skill_id, got {_said(value)}")
    if len(skills) > MAX_EXPECTED:
        raise _LineError(f"expected: expected at most {MAX_EXPECTED} skills, got {len(skills)}")
    for skill in skills:
        if not isinstance(skill, str) or not 0 < len(skill.strip()) <= MAX_SKILL_CHARS:
            raise _LineError(f"expected: expected skill_ids of 1 to {MAX_SKILL_CHARS} characters, got {_said(skill)}")
    return tuple(dict.fromkeys(_text(EXPECTED, skill.strip()) for skill in skills))


def _optional(row: Mapping[str, Any], field: str) -> str | None:
    value = _field(row, field)
    if value is None:
        return None
    if not isinstance(value, str):
        raise _LineError(f"{field}: expected a text, got {_said(value)}")
    return _text(field, value.strip()) or None


def _text(field: str, value: str) -> str:
    if _NOT_UTF8.search(value):
        raise _LineError(f"{field}: expected UTF-8")
    return value


def _field(row: Mapping[str, Any], field: str) -> Any:
    return next((row[name] for name in NAMES[field] if name in row), None)


def _said(value: Any) -> str:
    return "nothing" if value is None or value == "" else f"{value!r:.80}"
