"""Values of any form as the archive keeps them: the frame of messages, calls and definitions, and none of their words.

The user's last text is put back, masked as a query is. All else becomes its type and length.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec

from collector import protocol_objects as shapes
from collector.mapping.conversation import from_json
from collector.read_attributes import CACHED
from collector.redact import Redactor, described
from collector.redact_messages import KnownMessage, redact_message, redact_plain
from collector.remembered import Remembered

_MAX_LABEL = 512
#: Labels that something was masked in, and menus: so many are remembered.
_MASKED = 1_024
_MENUS = 256
_MAX_DEPTH = 64
#: Messages that are remembered; and the characters of a list of them beyond which ``from_json`` may refuse it.
_MESSAGES = 8_192
_MAX_MESSAGES = 1_000_000
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_encode = msgspec.json.Encoder().encode
#: A message that is not kept alike wherever it stands.
_UNUSUAL = KnownMessage("", ())
#: Stands where a text is to be put.
_HOLE = "<pickwise: a text>"
_ENCODED_HOLE = f'"{_HOLE}"'


class UserText:
    """The last text that a user wrote in a list of messages: where its place is, and what it was."""

    __slots__ = ("_around", "_holder", "_key", "_text")

    def __init__(self) -> None:
        self._holder: Any = None
        self._key: Any = None
        self._text = ""
        self._around: tuple[str, str] | None = None

    def note(self, holder: Any, key: Any, text: str, around: tuple[str, str] | None = None) -> None:
        """``around``: the place is that of a whole message, whose JSON this is before and after the text."""
        self._holder, self._key, self._text, self._around = holder, key, text, around

    def put_back(self, redactor: Redactor) -> None:
        if self._holder is not None:
            masked = redactor.query(self._text)[0]
            self._holder[self._key] = masked if self._around is None else _put_between(self._around, masked)


class ValueRedactor:
    """Redacts single values."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        #: Texts that are kept, masked, wherever they stand.
        self.queries: frozenset[str] = frozenset()
        #: Whether a label was masked since this was last set to False: then it may name something else than before.
        self.has_masked_label = False
        #: Labels in which nothing is to be masked, as in nearly all.
        self.clean_labels: set[str] = set()
        self._masked_label = lru_cache(_MASKED)(redactor.text)
        self._definitions: Remembered[tuple[str], tuple[str | None, bool]] = Remembered(_MENUS)
        self._messages: Remembered[tuple[bytes], KnownMessage] = Remembered(_MESSAGES)

    def label(self, value: Any) -> Any:
        """A name, an id, a kind; or a list of them."""
        if isinstance(value, str):
            if value in self.clean_labels:
                return value
            masked = self._masked_label(value if len(value) <= _MAX_LABEL else value[:_MAX_LABEL])
            if masked != value:
                self.has_masked_label = True
            else:
                self._remember(value)
            return masked
        if isinstance(value, list):
            return [self.label(item) if isinstance(item, str) else described(item) for item in value]
        return described(value) if isinstance(value, dict | bytes) else value

    def are_clean(self, labels: Iterable[Any]) -> bool:
        """Whether all are names, ids and kinds known to hold nothing to mask: they are kept as they are."""
        try:
            return self.clean_labels.issuperset(labels)
        except TypeError:  # a list among them
            return False

    def _remember(self, label: str) -> None:
        if len(self.clean_labels) >= CACHED:
            self.clean_labels.clear()
        self.clean_labels.add(label)

    def arguments(self, value: Any) -> Any:
        """The names of arguments with the type and length of their values; a schema of them as it is."""
        decoded = from_json(value) if isinstance(value, str) else value
        if not isinstance(decoded, dict):
            return described(value)
        if "properties" in decoded and shapes.is_schema(decoded):
            return self.definitions(value)
        kept = {
            name: f"string({len(item)})" if isinstance(item, str) else described(item) for name, item in decoded.items()
        }
        return _as_json(kept) if isinstance(value, str) else kept

    def json_list(self, value: Any, role: str) -> str | None:
        """What ``put`` keeps of an attribute that is a list as JSON text; None for any other."""
        if not isinstance(value, str) or value[:1] != "[" or len(value) > _MAX_MESSAGES or shapes.is_tool(role):
            return None
        return None if self.queries and value in self.queries else self._message_list(value, role)

    def put(self, holder: Any, key: Any, value: Any, role: str, text: UserText, depth: int = 0) -> None:
        """Put what is kept of a value into its place. ``role``: of the message around it, `tool` for a result."""
        if not isinstance(value, str):
            holder[key] = self._value(value, role, text, depth)
        elif value in self.queries:
            holder[key] = self._redactor.query(value)[0]
        elif value.startswith(("{", "[")) and (kept := self._json_text(value, role, depth)) is not None:
            holder[key] = kept
        else:
            holder[key] = described(value)
            if shapes.is_user(role):
                text.note(holder, key, value)

    def _json_text(self, value: str, role: str, depth: int) -> str | None:
        """JSON text stays text: the user's words are put back before it is encoded. None for what is no JSON."""
        if not depth and (listed := self.json_list(value, role)) is not None:
            return listed
        decoded = from_json(value) if depth <= _MAX_DEPTH else value
        if isinstance(decoded, str):
            return None
        words = UserText()
        decoded = self._value(decoded, role, words, depth + 1)
        words.put_back(self._redactor)
        return _as_json(decoded)

    # -- lists of messages ------------------------------------------------------------------------------------------

    def _message_list(self, text: str, role: str) -> str | None:
        """A list of messages, or of anything else, as JSON text; None for what is no JSON."""
        words, queries, messages = UserText(), self.queries, self._messages
        unusual: list[int] = []
        try:
            items: list[Any] = _ITEMS.decode(text)
            for index, item in enumerate(items):
                raw = bytes(item)
                known = messages.get((raw,)) or self._learned(raw)
                if known is not _UNUSUAL and (not queries or queries.isdisjoint(known.texts)):
                    items[index] = known.kept
                    if known.around is not None:
                        words.note(items, index, known.texts[-1], known.around)
                elif known.around is not None and len(known.texts) == 1:
                    items[index] = _put_between(known.around, self._redactor.query(known.texts[0])[0])
                else:
                    unusual.append(index)
                    self._put_item(items, index, msgspec.json.decode(raw), role, words)
        except (msgspec.MsgspecError, RecursionError):
            return None
        words.put_back(self._redactor)
        for index in unusual:
            items[index] = _as_json(items[index])
        return f"[{','.join(items)}]"

    def _put_item(self, items: list[Any], index: int, item: Any, role: str, words: UserText) -> None:
        """Put what is kept of an item of any form into its place."""
        items[index] = item
        if not redact_message(item, self, words):
            self.put(items, index, item, role, words, 2)

    def _learned(self, raw: bytes) -> KnownMessage:
        known = self._known(raw)
        self._messages.keep((raw,), known)
        return known

    def _known(self, raw: bytes) -> KnownMessage:
        message = msgspec.json.decode(raw)
        before, self.has_masked_label = self.has_masked_label, False
        texts = redact_plain(message, self)
        was_masked, self.has_masked_label = self.has_masked_label, before
        if texts is None or was_masked:
            return _UNUSUAL
        if not texts or message["role"] != "user":
            return KnownMessage(_as_json(message), texts)
        around = _around_last_text(message)
        return _UNUSUAL if around is None else KnownMessage(_put_between(around, described(texts[-1])), texts, around)

    def _value(self, value: Any, role: str, text: UserText, depth: int) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, dict):
            return self._object(value, role, text, depth)
        if depth > _MAX_DEPTH or not isinstance(value, list):
            return described(value)
        items: list[Any] = [None] * len(value)
        for index, item in enumerate(value):
            if isinstance(item, dict):
                items[index] = self._object(item, role, text, depth + 1)
            else:
                self.put(items, index, item, role, text, depth + 1)
        return items

    def _object(self, value: dict[Any, Any], role: str, text: UserText, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            return described(value)
        frame = shapes.frame_of(value, role)
        if frame.may_define and shapes.is_definition(value):
            return self.masked(value)
        if frame.is_bare_result:
            return described(value)
        kept: dict[Any, Any] = {}
        clean_labels = self.clean_labels
        for name, holds, whose, is_user in frame.fields:
            item = value[name]
            if isinstance(item, str):
                if holds == "label":
                    kept[name] = item if item in clean_labels else self.label(item)
                elif holds == "arguments":
                    kept[name] = self.arguments(item)
                elif holds == "other" and (item in self.queries or item.startswith(("{", "["))):
                    self.put(kept, name, item, whose, text, depth + 1)
                else:
                    kept[name] = f"string({len(item)})"
                    if is_user and holds == "other":
                        text.note(kept, name, item)
            elif holds == "arguments":
                kept[name] = self.arguments(item)
            elif holds == "label" and not isinstance(item, dict):
                kept[name] = self.label(item)
            elif holds == "result" or (frame.holds_answers and not shapes.holds_answers(item)):
                kept[name] = item if isinstance(item, bool | None) else described(item)
            else:
                kept[name] = self._value(item, whose, text, depth + 1)
        return kept

    # -- tool definitions -------------------------------------------------------------------------------------------

    def definitions(self, value: Any) -> Any:
        """Tool definitions with their texts masked; None where the value holds anything else."""
        if isinstance(value, str):
            found = self._definitions.get((value,))
            if found is None:
                found = self._masked_definitions(value)
                self._definitions.keep((value,), found)
            kept, was_masked = found
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


def _put_between(around: tuple[str, str], text: str) -> str:
    return _as_json(text).join(around)


def _around_last_text(message: dict[str, Any]) -> tuple[str, str] | None:
    """The JSON of a user's message before and after its last text; None where that can't be told."""
    last = next(part for part in reversed(message["parts"]) if "content" in part)
    last["content"] = _HOLE
    before, *after = _as_json(message).split(_ENCODED_HOLE)
    return (before, after[0]) if len(after) == 1 else None


def _as_json(value: Any) -> str:
    return _encode(value).decode()
