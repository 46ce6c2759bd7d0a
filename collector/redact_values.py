"""Values of any form as the archive keeps them: the frame of messages, calls and definitions, and none of their words.

The user's last text is put back, masked as a query is. All else becomes its type and length.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from collector import protocol_objects as shapes
from collector.mapping.conversation import from_json
from collector.read_attributes import CACHED
from collector.redact import Redactor, described

_MAX_LABEL = 512
_MAX_DEPTH = 64


class UserText:
    """The last text that a user wrote in a list of messages: where its place is, and what it was."""

    __slots__ = ("_holder", "_key", "_text")

    def __init__(self) -> None:
        self._holder: Any = None
        self._key: Any = None
        self._text = ""

    def note(self, holder: Any, key: Any, text: str) -> None:
        self._holder, self._key, self._text = holder, key, text

    def put_back(self, redactor: Redactor) -> None:
        if self._holder is not None:
            self._holder[self._key] = redactor.query(self._text)[0]


class ValueRedactor:
    """Redacts single values. ``queries``: texts that are kept, masked, wherever they stand."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self.queries: frozenset[str] = frozenset()
        #: Whether a label was masked since this was last set to False: then it may name something else than before.
        self.has_masked_label = False
        self._masked_label = lru_cache(CACHED)(lambda text: redactor.text(text[:_MAX_LABEL]))
        self._definitions = lru_cache(256)(self._masked_definitions)

    def label(self, value: Any) -> Any:
        """A name, an id, a kind; or a list of them."""
        if isinstance(value, str):
            masked = self._masked_label(value)
            if masked != value:
                self.has_masked_label = True
            return masked
        if isinstance(value, list):
            return [self.label(item) if isinstance(item, str) else described(item) for item in value]
        return described(value) if isinstance(value, dict | bytes) else value

    def arguments(self, value: Any) -> Any:
        """The names of arguments with the type and length of their values; a schema of them as it is."""
        decoded = from_json(value)
        if not isinstance(decoded, dict):
            return described(value)
        if shapes.is_schema(decoded):
            return self.definitions(value)
        kept = {name: described(item) for name, item in decoded.items()}
        return _as_json(kept) if isinstance(value, str) else kept

    def put(self, holder: Any, key: Any, value: Any, role: str, text: UserText, depth: int = 0) -> None:
        """Put what is kept of a value into its place. ``role``: of the message around it, `tool` for a result."""
        if isinstance(value, str):
            self._put_text(holder, key, value, role, text, depth)
        else:
            holder[key] = self._value(value, role, text, depth)

    def _put_text(self, holder: Any, key: Any, value: str, role: str, text: UserText, depth: int) -> None:
        if value in self.queries:
            holder[key] = self._redactor.query(value)[0]
            return
        decoded = from_json(value) if value[:1] in ("{", "[") and depth <= _MAX_DEPTH else value
        if not isinstance(decoded, str):  # JSON text stays text: the user's words are put back before it is encoded
            inner: list[Any] = [None]
            words = UserText()
            self.put(inner, 0, decoded, role, words, depth + 1)
            words.put_back(self._redactor)
            holder[key] = _as_json(inner[0])
            return
        holder[key] = described(value)
        if shapes.is_user(role):
            text.note(holder, key, value)

    def _value(self, value: Any, role: str, text: UserText, depth: int) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if depth > _MAX_DEPTH or not isinstance(value, dict | list):
            return described(value)
        if isinstance(value, dict):
            return self.masked(value) if shapes.is_definition(value) else self._object(value, role, text, depth)
        items: list[Any] = [None] * len(value)
        for index, item in enumerate(value):
            self.put(items, index, item, role, text, depth + 1)
        return items

    def _object(self, value: dict[Any, Any], role: str, text: UserText, depth: int) -> Any:
        # A result may look like anything, so nothing in it says whose it is.
        role = role if shapes.is_tool(role) else shapes.role_of(value, role)
        holds_result = shapes.is_tool(role)
        if holds_result and not shapes.is_answer(value):
            return described(value)
        speaks = shapes.speaks(value)
        kept: dict[Any, Any] = {}
        for name, item in value.items():
            if speaks and name in shapes.LABELS and not isinstance(item, dict):
                kept[name] = self.label(item)
            elif speaks and name in shapes.ARGUMENTS and not shapes.is_constructor(value):
                kept[name] = self.arguments(item)
            elif not shapes.holds_answers(item) if holds_result else shapes.is_result(name, value):
                kept[name] = item if isinstance(item, bool | None) else described(item)
            else:
                self.put(kept, name, item, role if name in shapes.CONTENT else "", text, depth + 1)
        return kept

    # -- tool definitions -------------------------------------------------------------------------------------------

    def definitions(self, value: Any) -> Any:
        """Tool definitions with their texts masked; None where the value holds anything else."""
        if isinstance(value, str):
            kept, was_masked = self._definitions(value)
            self.has_masked_label |= was_masked
            return kept
        if isinstance(value, list):
            items = [self.definitions(item) for item in value]
            return None if any(item is None for item in items) else items
        return self.masked(value) if isinstance(value, dict) and shapes.is_definition(value) else None

    def _masked_definitions(self, text: str) -> tuple[str | None, bool]:
        """What ``definitions`` makes of JSON text, and whether anything in it was masked. The same menu comes often."""
        decoded = from_json(text)
        items = decoded if isinstance(decoded, list) else [decoded]
        if not all(isinstance(item, dict) and shapes.is_definition(item) for item in items):
            return None, False
        masked = self.masked(decoded)
        return _as_json(masked), masked != decoded

    def masked(self, value: Any, depth: int = 0) -> Any:
        """Whatever a tool is defined with, its texts masked."""
        if isinstance(value, str):
            return self.label(value) if len(value) <= _MAX_LABEL else self._redactor.text(value)
        if depth > _MAX_DEPTH:
            return described(value)
        if isinstance(value, dict):
            return {key: self.masked(item, depth + 1) for key, item in value.items()}
        return [self.masked(item, depth + 1) for item in value] if isinstance(value, list) else value


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
