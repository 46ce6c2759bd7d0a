"""Documents of a search, in the forms that senders give them, and the skills that they may stand for.

A document names a skill by its id; else by its metadata; else by its text, where that is a tool's definition as JSON.
Which of these is meant its sender alone knows, so all of them are read.
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from collector.mapping import attributes as names
from collector.mapping.conversation import from_json
from collector.mapping.flattened import Group
from collector.mapping.literals import from_literal

_SKILL_ID_CHARS = 512
#: Ids that a store made up: no skill is called so.
_MADE_UP = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{32,}", re.IGNORECASE)
#: A text that is a definition is not longer.
_DEFINITION_CHARS = 100_000

_IDS = ("id", "document_id", "doc_id", "node_id", "id_", "_id", "key")
_SCORES = ("score", "relevance_score", "rerank_score", "similarity", "similarity_score")
_TEXTS = ("content", "page_content", "text", "document")
_METADATA = ("metadata", "meta", "extra_info", "payload", "entity", "value")
_NAMES = ("name", "tool_name", "skill_id", "tool")
#: What a document is wrapped in, with its score beside it.
_WRAPPERS = ("document", "node", "doc", "kwargs")
#: Where a result has its list of documents.
_LISTS = ("documents", "results", "nodes", "source_nodes", "docs", "matches", "hits", "output", "outputs", "result")
_MAX_LAYERS = 4


class Document(msgspec.Struct, kw_only=True):
    """The skills that a document may mean, likeliest first (None: none), its score, and its place in another list."""

    names: tuple[str | None, str | None, str | None]
    score: float | None = None
    index: int | None = None


def flattened_document(group: Group) -> Document:
    """From the attributes of one document of OpenInference."""
    return document(
        {
            "id": group.get(names.OI_DOCUMENT_ID),
            "score": group.get(names.OI_DOCUMENT_SCORE),
            "content": group.get(names.OI_DOCUMENT_CONTENT),
            "metadata": group.get(names.OI_DOCUMENT_METADATA),
        }
    )


def documents_in(value: Any) -> list[Document]:
    """The documents of a result, structured or as JSON text; none where it holds no list of them."""
    found = _list_in(value, 0)
    return [document(item) for item in found] if found else []


def document(raw: Any) -> Document:
    """From any of the usual forms: an object, one in a wrapper, a pair with its score, a text."""
    raw, score = _unpaired(raw)
    if isinstance(raw, str):
        return Document(names=(None, None, _name_in_text(raw)), score=score)
    if not isinstance(raw, dict):
        return Document(names=(None, None, None))
    score = score if score is not None else _first_number(raw)
    index = raw.get("index")
    body = _unwrapped(raw)
    score = score if score is not None else _first_number(body)
    texts = (body.get(key) for key in _TEXTS)
    return Document(
        names=(
            _first_id(body) or _first_id(raw),
            _name_in(_metadata(body)) or _name_in(body),
            next((name for text in texts if (name := _name_in_text(text))), None),
        ),
        score=score,
        index=index if isinstance(index, int) and not isinstance(index, bool) else None,
    )


def number(value: Any) -> float | None:
    """The value as a finite number, also from text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _list_in(value: Any, layer: int) -> list[Any] | None:
    decoded = from_json(value)
    if isinstance(decoded, list):
        return decoded
    if not isinstance(decoded, dict) or layer == _MAX_LAYERS:
        return None
    held = (decoded[key] for key in _LISTS if key in decoded)
    return next((found for inner in held if (found := _list_in(inner, layer + 1)) is not None), None)


def _unpaired(raw: Any) -> tuple[Any, float | None]:
    """A document and its score, as vector stores return them together."""
    if isinstance(raw, list) and len(raw) == 2 and isinstance(raw[1], int | float):
        return raw[0], number(raw[1])
    return raw, None


def _unwrapped(raw: dict[str, Any]) -> dict[str, Any]:
    body = raw
    for _ in range(_MAX_LAYERS):
        inner = next((body[key] for key in _WRAPPERS if isinstance(body.get(key), dict)), None)
        if inner is None:
            break
        body = inner
    return body


def _first_number(raw: dict[str, Any]) -> float | None:
    return next((found for key in _SCORES if (found := number(raw.get(key))) is not None), None)


def _first_id(raw: dict[str, Any]) -> str | None:
    return next((found for key in _IDS if (found := _as_id(raw.get(key)))), None)


def _as_id(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    text = str(value)
    return text[:_SKILL_ID_CHARS] if text and not _MADE_UP.fullmatch(text) else None


def _metadata(body: dict[str, Any]) -> Any:
    for key in _METADATA:
        decoded = from_json(body.get(key))
        if isinstance(decoded, str):
            decoded = from_literal(decoded)
        if isinstance(decoded, dict):
            return decoded
    return None


def _name_in(value: Any) -> str | None:
    """The name that an object gives, itself or in the definition that it holds."""
    if not isinstance(value, dict):
        return None
    for held in (*(value.get(key) for key in _NAMES), value.get("function")):
        name = held if isinstance(held, str) else _name_in(held)
        if name:
            return name[:_SKILL_ID_CHARS]
    return None


def _name_in_text(text: Any) -> str | None:
    if isinstance(text, dict):
        return _name_in(text)
    if not isinstance(text, str) or len(text) > _DEFINITION_CHARS or not text.lstrip().startswith("{"):
        return None
    return _name_in(from_json(text))
