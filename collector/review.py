"""The review of a registry: what will make models pick wrong, found without a model.

Each rule reads one entry, or compares all of them, and yields findings: a code, a sentence, the skill and the field.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal

import jsonschema
import msgspec
import numpy as np

from pickwise.text import terms

Severity = Literal["error", "warning"]
Entry = dict[str, Any]

MAX_DESCRIPTION_WORDS = 200
MAX_SCHEMA_TOKENS = 1_000
MIN_EXAMPLES = 2
#: Two descriptions that share this part of their terms are confusable; the most similar pairs are reported.
MIN_OVERLAP = 0.6
MAX_PAIRS = 50
#: Shorter descriptions share terms by chance.
_MIN_TERMS = 4
_CHUNK = 512

_ABSTRACT = re.compile(
    r"\b(miscellaneous|and (?:so on|more)|etc|stuff|things|anything|everything|general[- ]purpose|generic|"
    r"helper|helps? (?:you|with)|deals? with|(?:handles?|manages?|processes) (?:all|any|requests?|data|tasks?|it))\b"
    r"|各种|各类|等等|相关操作|通用|一些",
    re.IGNORECASE,
)
_TRIGGER = re.compile(
    r"\b(when|whenever|if|use (?:this|it|for|to)|used (?:for|to)|call this|in case|asks?|wants?|needs?)\b"
    r"|当|如果|若|用于|适用|需要|时使用|场景",
    re.IGNORECASE,
)
_ALTERNATIVES = re.compile(
    r"\b(?:one of|either|allowed values?|possible values?|valid (?:values?|options?)|options? (?:are|is)|choose from)\b"
    r"|(?:['\"`][\w -]+['\"`]\s*(?:,|/|\||or|and)\s*)+['\"`][\w -]+['\"`]|\b\w+\s*\|\s*\w+\b"
    r"|可选值|取值|可选项|之一",
    re.IGNORECASE,
)
_DRAFT_7 = jsonschema.Draft7Validator(jsonschema.Draft7Validator.META_SCHEMA)
_WORD = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]|[^\W\u3400-\u9fff\uf900-\ufaff]+")
_SEPARATORS = re.compile(r"[\W_]+")


class Finding(msgspec.Struct, frozen=True):
    """One weakness of an entry. ``error`` ones are refused by a strict write."""

    severity: Severity
    code: str
    message: str
    skill_id: str
    field: str


def review(entries: Sequence[Entry], concerning: Collection[str] | None = None) -> list[Finding]:
    """Findings over the entries of one registry, rule by rule; ``concerning`` limits them to those skill ids."""
    wanted = [entry for entry in entries if concerning is None or entry["skill_id"] in concerning]
    findings = [finding for rule in _ENTRY_RULES for entry in wanted for finding in rule(entry)]
    compared = [finding for rule in _REGISTRY_RULES for finding in rule(entries)]
    return findings + [f for f in compared if concerning is None or f.skill_id in concerning]


def fold_name(name: str) -> str:
    """A name without case and separators: what makes two names look the same to a model."""
    return _SEPARATORS.sub("", name).casefold()


def estimated_tokens(schema: object) -> int:
    """Tokens of a schema in a prompt, estimated: 4 characters of its compact JSON a token, 1 outside ASCII."""
    text = msgspec.json.encode(schema).decode()
    wide = sum(1 for character in text if ord(character) > 0x2E7F) if not text.isascii() else 0
    return wide + (len(text) - wide + 3) // 4


def _no_description(entry: Entry) -> Iterator[Finding]:
    if not _description(entry).strip():
        yield _finding("error", "no_description", entry, "description", "has no description")


def _long_description(entry: Entry) -> Iterator[Finding]:
    words = len(_WORD.findall(_description(entry)))
    if words > MAX_DESCRIPTION_WORDS:
        yield _finding(
            "warning",
            "long_description",
            entry,
            "description",
            f"has a description of {words} words; beyond {MAX_DESCRIPTION_WORDS} models read past it",
        )


def _abstract_wording(entry: Entry) -> Iterator[Finding]:
    found = _ABSTRACT.search(_description(entry))
    if found:
        yield _finding(
            "warning",
            "abstract_wording",
            entry,
            "description",
            f"says {found[0]!r}, which tells no skill from another; name the action and the object",
        )


def _no_trigger(entry: Entry) -> Iterator[Finding]:
    if not entry.get("trigger_phrases") and not _TRIGGER.search(_description(entry)):
        yield _finding("warning", "no_trigger", entry, "trigger_phrases", "says what it does but not when to pick it")


def _no_exclusion(entry: Entry) -> Iterator[Finding]:
    if not entry.get("not_for"):
        yield _finding("warning", "no_not_for", entry, "not_for", "does not say what it is not for")


def _few_examples(entry: Entry) -> Iterator[Finding]:
    count = len(entry.get("examples") or [])
    if count < MIN_EXAMPLES:
        yield _finding(
            "warning", "few_examples", entry, "examples", f"has {count} example(s), expected at least {MIN_EXAMPLES}"
        )


def _invalid_schema(entry: Entry) -> Iterator[Finding]:
    schema = entry.get("parameters_schema")
    problem = _schema_problem(msgspec.json.encode(schema, order="deterministic")) if schema else None
    if problem is not None:
        yield _finding(
            "error", "invalid_schema", entry, "parameters_schema", f"has no valid JSON Schema: {problem:.200}"
        )


@lru_cache(maxsize=16_384)
def _schema_problem(encoded: bytes) -> str | None:
    """Why a schema is none; cached, because a registry is written again and again with few changes."""
    schema = msgspec.json.decode(encoded)
    dialect = schema.get("$schema", "") if isinstance(schema, dict) else ""
    if not isinstance(dialect, str):
        return f"$schema: expected the address of a dialect, got {dialect!r:.60}"
    try:
        if _DRAFT_7.is_valid(schema):  # five times as fast as the current draft, and strict enough to wave through
            return None
        jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator).check_schema(schema)
    except jsonschema.SchemaError as error:
        return error.message
    except RecursionError:
        return "it is nested too deep to be checked"
    return None


def _large_schema(entry: Entry) -> Iterator[Finding]:
    schema = entry.get("parameters_schema")
    tokens = estimated_tokens(schema) if schema else 0
    if tokens > MAX_SCHEMA_TOKENS:
        yield _finding(
            "warning",
            "large_schema",
            entry,
            "parameters_schema",
            f"has a schema of about {tokens} tokens (estimated at 4 characters a token), more than {MAX_SCHEMA_TOKENS}",
        )


def _missing_enums(entry: Entry) -> Iterator[Finding]:
    for path, parameter in _parameters(entry.get("parameters_schema"), ""):
        if _is_free_string(parameter) and _ALTERNATIVES.search(str(parameter.get("description", ""))):
            yield _finding(
                "warning",
                "string_not_enum",
                entry,
                f"parameters_schema.{path}",
                f"lists the values of {path!r} in its description; an enum would hold models to them",
            )


def _alike_names(entries: Sequence[Entry]) -> Iterator[Finding]:
    by_fold: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_fold[fold_name(_name(entry))].append(entry)
    for alike in by_fold.values():
        for entry in alike[1:]:
            first = next((other for other in alike if _name(other) == _name(entry)), alike[0])
            if first is not entry:
                message = f"has the same name {_name(entry)!r} as {first['skill_id']!r}"
                yield _finding("error", "duplicate_name", entry, "name", message)
            else:
                message = f"has the name {_name(entry)!r}, which looks like {_name(alike[0])!r} of " + repr(
                    alike[0]["skill_id"]
                )
                yield _finding("warning", "near_duplicate_name", entry, "name", message)


def _overlapping_descriptions(entries: Sequence[Entry]) -> Iterator[Finding]:
    for similarity, left, right in confusable_pairs(entries):
        for entry, other in ((left, right), (right, left)):
            yield _finding(
                "warning",
                "overlapping_description",
                entry,
                "description",
                f"shares {similarity:.0%} of its description's terms with {other['skill_id']!r}; "
                "say what sets them apart",
            )


def confusable_pairs(
    entries: Sequence[Entry], minimum: float = MIN_OVERLAP, limit: int = MAX_PAIRS
) -> list[tuple[float, Entry, Entry]]:
    """The pairs whose descriptions are most alike, best first: Jaccard index |A ∩ B| ÷ |A ∪ B| of their term sets."""
    bags = [set(terms(_description(entry))) for entry in entries]
    kept = [index for index, bag in enumerate(bags) if len(bag) >= _MIN_TERMS]
    if len(kept) < 2:
        return []
    # Imported here: a collector that reviews no registry starts without it.
    from sklearn.feature_extraction.text import CountVectorizer

    matrix = CountVectorizer(analyzer=sorted, binary=True).fit_transform([bags[index] for index in kept])
    sizes = np.asarray(matrix.sum(axis=1)).ravel()
    pairs: list[tuple[float, int, int]] = []
    for start in range(0, len(kept), _CHUNK):
        shared = (matrix[start : start + _CHUNK] @ matrix.T).tocoo()
        rows, columns = shared.row + start, shared.col
        jaccard = shared.data / (sizes[rows] + sizes[columns] - shared.data)
        alike = np.flatnonzero((jaccard >= minimum) & (columns > rows))
        pairs.extend((float(jaccard[at]), kept[rows[at]], kept[columns[at]]) for at in alike)
    pairs.sort(key=lambda pair: (-pair[0], pair[1], pair[2]))
    return [(similarity, entries[left], entries[right]) for similarity, left, right in pairs[:limit]]


def _parameters(schema: object, prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every described parameter of a JSON Schema with its path, also inside objects and arrays."""
    if not isinstance(schema, dict):
        return
    properties = schema.get("properties")
    for name, parameter in (properties if isinstance(properties, dict) else {}).items():
        if isinstance(parameter, dict):
            yield prefix + name, parameter
            yield from _parameters(parameter, f"{prefix}{name}.")
            yield from _parameters(parameter.get("items"), f"{prefix}{name}[].")


def _is_free_string(parameter: dict[str, Any]) -> bool:
    fixed = ("enum", "const", "pattern", "format", "anyOf", "oneOf", "$ref")
    return parameter.get("type") == "string" and not any(name in parameter for name in fixed)


def _description(entry: Entry) -> str:
    return str(entry.get("description") or "")


def _name(entry: Entry) -> str:
    return str(entry.get("name") or entry["skill_id"])


def _finding(severity: Severity, code: str, entry: Entry, field: str, what: str) -> Finding:
    return Finding(severity, code, f"{entry['skill_id']} {what}", entry["skill_id"], field)


_EntryRule = Callable[[Entry], Iterable[Finding]]
_RegistryRule = Callable[[Sequence[Entry]], Iterable[Finding]]


_ENTRY_RULES: tuple[_EntryRule, ...] = (
    _no_description,
    _long_description,
    _abstract_wording,
    _no_trigger,
    _no_exclusion,
    _few_examples,
    _invalid_schema,
    _large_schema,
    _missing_enums,
)
_REGISTRY_RULES: tuple[_RegistryRule, ...] = (_alike_names, _overlapping_descriptions)
