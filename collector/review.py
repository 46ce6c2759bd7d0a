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

from collector.confusable import Entry, confusable_pairs, fold_name
from collector.wording import abstract_phrase, lists_values, says_not_for, says_when

Severity = Literal["error", "warning"]

MAX_DESCRIPTION_WORDS = 200
MAX_SCHEMA_TOKENS = 1_000
MIN_EXAMPLES = 2
_DRAFT_7 = jsonschema.Draft7Validator(jsonschema.Draft7Validator.META_SCHEMA)
_WORD = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]|[^\W\u3400-\u9fff\uf900-\ufaff]+")
#: What holds a string to certain values.
_FIXED = ("enum", "const", "pattern", "format", "$ref", "allOf")


class Finding(msgspec.Struct, frozen=True):
    """One weakness of an entry. ``error`` ones are refused by a strict write."""

    severity: Severity
    code: str
    message: str
    skill_id: str
    field: str


def review(entries: Sequence[Entry], concerning: Collection[str] | None = None) -> list[Finding]:
    """Findings over the entries of one registry, errors first, then rule by rule.

    ``concerning`` limits them to those skill ids.
    """
    wanted = [entry for entry in entries if concerning is None or entry["skill_id"] in concerning]
    findings = [finding for rule in _REGISTRY_RULES for finding in rule(entries, concerning)]
    findings += [finding for rule in _ENTRY_RULES for entry in wanted for finding in rule(entry)]
    return sorted(
        (finding for finding in findings if concerning is None or finding.skill_id in concerning),
        key=lambda finding: finding.severity,
    )


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
    phrase = abstract_phrase(_description(entry))
    if phrase is not None:
        yield _finding(
            "warning",
            "abstract_wording",
            entry,
            "description",
            f"says {phrase!r}, which tells no skill from another; name the action and the object",
        )


def _no_trigger(entry: Entry) -> Iterator[Finding]:
    description = _description(entry)
    if description.strip() and not entry.get("trigger_phrases") and not says_when(description):
        yield _finding("warning", "no_trigger", entry, "trigger_phrases", "says what it does but not when to pick it")


def _no_exclusion(entry: Entry) -> Iterator[Finding]:
    if not entry.get("not_for") and not says_not_for(_description(entry)):
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
        return f"{error.message} (at {error.json_path})"
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
    schema = entry.get("parameters_schema")
    for path, parameter in _parameters(schema, _References(schema)):
        if _is_free_string(parameter) and lists_values(str(parameter.get("description", ""))):
            yield _finding(
                "warning",
                "string_not_enum",
                entry,
                f"parameters_schema.{path}",
                f"lists the values of {path!r} in its description; an enum would hold models to them",
            )


def _alike_names(entries: Sequence[Entry], _concerning: Collection[str] | None) -> Iterator[Finding]:
    """Each entry whose name another one has, or has but for case and separators."""
    by_fold: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_fold[fold_name(_name(entry))].append(entry)
    for alike in by_fold.values():
        for entry in alike if len(alike) > 1 else ():
            others = [other for other in alike if other is not entry]
            same = next((other for other in others if _name(other) == _name(entry)), None)
            if same is not None:
                message = f"has the same name {_name(entry)!r} as {same['skill_id']!r}"
                yield _finding("error", "duplicate_name", entry, "name", message)
            else:
                message = f"has the name {_name(entry)!r}, which looks like {_name(others[0])!r} of " + repr(
                    others[0]["skill_id"]
                )
                yield _finding("warning", "near_duplicate_name", entry, "name", message)


def _overlapping_descriptions(entries: Sequence[Entry], concerning: Collection[str] | None) -> Iterator[Finding]:
    for similarity, left, right in confusable_pairs(entries, concerning=concerning):
        for entry, other in ((left, right), (right, left)):
            yield _finding(
                "warning",
                "overlapping_description",
                entry,
                "description",
                f"shares {similarity:.0%} of its description's terms (rare ones count more) with "
                f"{other['skill_id']!r}; say what sets them apart",
            )


def _parameters(schema: object, references: _References, prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every described parameter of a JSON Schema with its path, also inside objects, arrays, choices and references."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for name, parameter in (properties if isinstance(properties, dict) else {}).items():
        if not isinstance(parameter, dict):
            continue
        yield prefix + name, parameter
        for choice in (parameter, *_choices(parameter)):
            if isinstance(choice, dict):
                yield from _parameters(references.resolved(choice), references, f"{prefix}{name}.")
                yield from _parameters(references.resolved(choice.get("items")), references, f"{prefix}{name}[].")


class _References:
    """The references of one schema into itself, each followed once: a schema may contain itself."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._followed: set[str] = set()

    def resolved(self, schema: object) -> object:
        """What a reference points to, None the second time; any other schema as it is."""
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str):
            return schema
        if not reference.startswith("#/") or reference in self._followed:
            return None
        self._followed.add(reference)
        found = self._root
        for step in reference[2:].split("/"):
            found = found.get(step) if isinstance(found, dict) else None
        return found


def _choices(parameter: dict[str, Any]) -> list[object]:
    """What ``anyOf`` and ``oneOf`` admit, as optional parameters are written."""
    return [
        choice for name in ("anyOf", "oneOf") if isinstance(parameter.get(name), list) for choice in parameter[name]
    ]


def _is_free_string(parameter: object) -> bool:
    """Whether a parameter takes any string, be it beside null."""
    if not isinstance(parameter, dict) or any(name in parameter for name in _FIXED):
        return False
    kinds = parameter.get("type")
    if choices := _choices(parameter):
        return all(_is_free_string(choice) for choice in choices if choice != {"type": "null"})
    return kinds == "string" or (isinstance(kinds, list) and "string" in kinds and set(kinds) <= {"string", "null"})


def _description(entry: Entry) -> str:
    return str(entry.get("description") or "")


def _name(entry: Entry) -> str:
    return str(entry.get("name") or entry["skill_id"])


def _finding(severity: Severity, code: str, entry: Entry, field: str, what: str) -> Finding:
    return Finding(severity, code, f"{entry['skill_id']} {what}", entry["skill_id"], field)


_EntryRule = Callable[[Entry], Iterable[Finding]]
_RegistryRule = Callable[[Sequence[Entry], Collection[str] | None], Iterable[Finding]]

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
