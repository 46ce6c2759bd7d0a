"""Where something stands in decoded JSON (``data.results[*].name``), and texts with such places (``{server}/{tool}``).

Paths know keys, positions and ``[*]`` (every item of a list), the part of JSONPath (RFC 9535) that names places.
"""

from __future__ import annotations

import re
from functools import lru_cache
from string import Formatter
from typing import Any

_STEP = re.compile(r"\[(?P<index>\*|\d{1,9})\]|\['(?P<quoted>[^']*)'\]|(?:^|\.)(?P<key>[^.\[\]{}'$]+)")
_EVERY = "*"
_EXPECTED = "expected a JSON path such as data.results[*].name"

#: A key, a position, or ``*``.
Step = str | int


class _Every:
    """Every item of a list; apart from ``'*'``, which may be a key."""


EVERY = _Every()


class JsonPath:
    """A parsed path. Raises ValueError for a text that is none."""

    def __init__(self, text: str) -> None:
        self.steps: tuple[Step | _Every, ...] = tuple(_steps(text))

    @property
    def is_single(self) -> bool:
        """Whether it names one place, not many."""
        return EVERY not in self.steps

    def find(self, document: Any) -> list[Any] | None:
        """The values at the path, in the document's order; None where it has no such place. An empty list has none."""
        found = [document]
        for step in self.steps:
            entered = [inner for value in found if (inner := _enter(value, step)) is not None]
            if found and not entered:
                return None
            found = [value for inner in entered for value in inner]
        return found

    def first(self, document: Any) -> Any:
        """The first value at the path, None where there is none."""
        found = self.find(document)
        return found[0] if found else None


class Template:
    """A parsed text with paths in braces. Raises ValueError for a text that is none."""

    def __init__(self, text: str) -> None:
        self._parts: list[tuple[str, JsonPath | None]] = []
        try:
            parsed = list(Formatter().parse(text))
        except ValueError as error:
            raise ValueError(f"expected a template such as {{server}}/{{tool}}: {error}") from error
        for literal, field, spec, conversion in parsed:
            if field == "" or spec or conversion:
                raise ValueError("expected a template such as {server}/{tool}: braces hold a path and nothing else")
            self._parts.append((literal, _single(field) if field is not None else None))
        if not self.fields:
            raise ValueError("expected a template such as {server}/{tool}: it names no field")

    @property
    def fields(self) -> tuple[str, ...]:
        """The outermost keys that it reads."""
        firsts = (path.steps[0] for _, path in self._parts if path is not None and path.steps)
        return tuple(dict.fromkeys(step for step in firsts if isinstance(step, str)))

    def fill(self, document: Any) -> str | None:
        """The text with its fields filled in; None where one is absent, empty or no text or number."""
        filled = []
        for literal, path in self._parts:
            filled.append(literal)
            if path is None:
                continue
            value = path.first(document)
            if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
                return None
            filled.append(str(value))
        return "".join(filled)


@lru_cache(maxsize=1_024)
def json_path(text: str) -> JsonPath:
    """The path of a text. Raises ValueError."""
    return JsonPath(text)


@lru_cache(maxsize=1_024)
def template(text: str) -> Template:
    """The template of a text. Raises ValueError."""
    return Template(text)


def _steps(text: str) -> list[Step | _Every]:
    rest = text.strip().removeprefix("$").removeprefix(".")
    steps: list[Step | _Every] = []
    place = 0
    while place < len(rest):
        found = _STEP.match(rest, place)
        if found is None:
            raise ValueError(_EXPECTED)
        place = found.end()
        if found["index"] is not None:
            steps.append(EVERY if found["index"] == _EVERY else int(found["index"]))
        else:
            steps.append(found["key"] if found["quoted"] is None else found["quoted"])
    if not steps and not text.strip().startswith("$"):
        raise ValueError(_EXPECTED)
    return steps


def _single(text: str) -> JsonPath:
    path = JsonPath(text)
    if not path.is_single or not path.steps:
        raise ValueError(f"expected a path to one value in braces, got {text!r:.80}")
    return path


def _enter(value: Any, step: Step | _Every) -> list[Any] | None:
    """The values one step further, None where the step leads nowhere."""
    if step is EVERY:
        return value if isinstance(value, list) else None
    if isinstance(step, int):
        return [value[step]] if isinstance(value, list) and step < len(value) else None
    return [value[step]] if isinstance(value, dict) and step in value else None
