"""Each rule fires on the entry that needs it and stays silent on a good one."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from collector.review import estimated_tokens, review
from pickwise.skills import decode_skill

#: Of the 527 tools of LiveMCPBench, and the 1,929 of ACEBench.
ENGLISH = {
    "abstract_wording": 1,
    "duplicate_name": 30,
    "few_examples": 527,
    "invalid_schema": 1,
    "large_schema": 2,
    "long_description": 14,
    "near_duplicate_name": 2,
    "no_description": 19,
    "no_not_for": 521,
    "no_trigger": 448,
    "overlapping_description": 70,
    "string_not_enum": 8,
}
CHINESE = {
    "few_examples": 1_929,
    "invalid_schema": 117,
    "near_duplicate_name": 30,
    "no_not_for": 1_929,
    "no_trigger": 1_919,
    "overlapping_description": 38,
    "string_not_enum": 72,
}
GOOD: dict[str, Any] = {
    "skill_id": "weather/get_forecast",
    "name": "get_forecast",
    "description": "Give the weather forecast of one city for the next seven days. Use it when the user asks for rain.",
    "trigger_phrases": ["will it rain"],
    "not_for": ["past weather"],
    "examples": [{"query": "rain in Paris?"}, {"query": "weather tomorrow in Oslo"}],
    "parameters_schema": {"type": "object", "properties": {"unit": {"type": "string", "enum": ["C", "F"]}}},
}
OTHER = GOOD | {
    "skill_id": "mail/send",
    "name": "send",
    "description": "Send an e-mail to one person. Use it when the user wants to write to someone by mail.",
}


def codes(*entries: dict[str, Any]) -> list[str]:
    return [finding.code for finding in review(entries)]


def test_good_entries_have_no_findings() -> None:
    assert codes(GOOD, OTHER) == []


def schema_with(parameter: dict[str, Any]) -> dict[str, Any]:
    return {"parameters_schema": {"type": "object", "properties": {"unit": parameter}}}


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"description": " "}, "no_description", "description"),
        ({"description": "If asked: " + "word " * 201}, "long_description", "description"),
        ({"description": "当用户询问时" + "字" * 200}, "long_description", "description"),
        ({"description": "When asked, handles various things."}, "abstract_wording", "description"),
        ({"description": "需要时处理各种相关操作"}, "abstract_wording", "description"),
        ({"trigger_phrases": [], "description": "Forecast of a city."}, "no_trigger", "trigger_phrases"),
        ({"not_for": []}, "no_not_for", "not_for"),
        ({"examples": [{"query": "one"}]}, "few_examples", "examples"),
        (schema_with({"type": "string", "enum": ["x" * 50] * 100}), "large_schema", "parameters_schema"),
        (schema_with({"type": "strnig"}), "invalid_schema", "parameters_schema"),
        (
            schema_with({"type": "string", "description": "one of C or F"}),
            "string_not_enum",
            "parameters_schema.unit",
        ),
        (
            schema_with({"type": "string", "description": "'metric', 'imperial' or 'si'"}),
            "string_not_enum",
            "parameters_schema.unit",
        ),
        (
            schema_with({"type": "array", "items": {"properties": {"a": {"type": "string", "description": "可选值"}}}}),
            "string_not_enum",
            "parameters_schema.unit[].a",
        ),
    ],
)
def test_a_weak_entry_is_found_out(change: dict[str, Any], code: str, field: str) -> None:
    findings = review([GOOD | change, OTHER])
    assert (code, field, GOOD["skill_id"]) in [(f.code, f.field, f.skill_id) for f in findings]
    assert all(GOOD["skill_id"] in finding.message for finding in findings)


def test_the_same_name_twice_is_an_error_of_both() -> None:
    first, second = review([GOOD, OTHER | {"name": "get_forecast"}])
    assert (first.severity, first.code, first.skill_id) == ("error", "duplicate_name", GOOD["skill_id"])
    assert (second.severity, second.code, second.skill_id) == ("error", "duplicate_name", "mail/send")
    assert GOOD["skill_id"] in second.message
    assert "mail/send" in first.message


def test_names_that_differ_in_case_and_separators_are_near() -> None:
    findings = review([GOOD, OTHER | {"name": "GetForecast"}])
    assert [(finding.severity, finding.code) for finding in findings] == [("warning", "near_duplicate_name")] * 2


def test_one_name_is_told_of_whichever_entry_is_written() -> None:
    entries = [GOOD, OTHER | {"name": "get_forecast"}]
    for entry in entries:
        assert [finding.skill_id for finding in review(entries, concerning={entry["skill_id"]})] == [entry["skill_id"]]


def test_descriptions_that_overlap_are_told_of_both_with_their_similarity() -> None:
    left = {"skill_id": "a", "description": "alpha beta gamma delta"}
    assert "overlapping_description" not in codes(left, {"skill_id": "c", "description": "one two three four"})
    overlaps = [f for f in review([left, left | {"skill_id": "b"}]) if f.code == "overlapping_description"]
    assert [(f.skill_id, f.field) for f in overlaps] == [("a", "description"), ("b", "description")]
    assert "100%" in overlaps[0].message
    assert "'b'" in overlaps[0].message


def test_errors_come_first() -> None:
    severities = [finding.severity for finding in review([GOOD | {"not_for": []}, {"skill_id": "bare"}])]
    assert severities == sorted(severities)
    assert severities[0] == "error"


def test_what_is_missing_everywhere_is_said_once() -> None:
    """No sentence on when to pick it where nothing is said at all."""
    assert "no_trigger" not in codes({"skill_id": "bare"})


def test_a_description_that_says_what_it_is_not_for_needs_no_field() -> None:
    says = GOOD["description"] + " Not for past weather."
    assert "no_not_for" not in codes(GOOD | {"not_for": [], "description": says}, OTHER)


OPTIONAL = {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "one of C, F"}


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"properties": {"unit": OPTIONAL}}, "unit"),
        ({"properties": {"unit": {"type": ["string", "null"], "description": "one of C, F"}}}, "unit"),
        ({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"properties": {"unit": OPTIONAL}}}}, "a.unit"),
        (
            {
                "properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/A"}}},
                "$defs": {"A": {"properties": {"unit": OPTIONAL}}},
            },
            "a[].unit",
        ),
    ],
)
def test_strings_are_found_where_libraries_write_them(schema: dict[str, Any], path: str) -> None:
    findings = review([GOOD | {"parameters_schema": schema}])
    assert [finding.field for finding in findings] == [f"parameters_schema.{path}"]


def test_a_choice_that_holds_an_enum_is_no_free_string() -> None:
    choice = OPTIONAL | {"anyOf": [{"type": "string", "enum": ["C"]}, {"type": "null"}]}
    assert codes(GOOD | {"parameters_schema": {"properties": {"unit": choice}}}) == []


def test_a_schema_that_refers_to_itself_ends() -> None:
    node: dict[str, Any] = {"properties": {name: {"$ref": "#/$defs/N"} for name in "abcdefgh"}}
    assert codes(GOOD | {"parameters_schema": {"properties": {"n": {"$ref": "#/$defs/N"}}, "$defs": {"N": node}}}) == []


def test_findings_can_be_limited_to_some_skills() -> None:
    bare = {"skill_id": "bare", "description": ""}
    assert {finding.skill_id for finding in review([bare, GOOD | {"not_for": []}], concerning={"bare"})} == {"bare"}


def test_tokens_are_estimated_by_characters() -> None:
    assert estimated_tokens("x" * 398) == 100
    assert estimated_tokens("字" * 10) == 10 + 1


def test_two_thousand_skills_are_reviewed_in_seconds() -> None:
    entries = [
        GOOD
        | {"skill_id": f"s{i}", "name": f"n{i}", "description": f"word{i} word{i % 7} word{i % 11} when word{i % 3}"}
        for i in range(2_000)
    ]
    start = time.monotonic()
    review(entries)
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    "schema",
    [
        *({"$schema": dialect} for dialect in ([1], 5, {"a": 1}, True)),
        {"type": "objct"},
        {"properties": {"a": 3}},
        {"required": "a"},
    ],
)
def test_a_schema_that_is_none_is_a_finding(schema: dict[str, Any]) -> None:
    assert "invalid_schema" in codes(GOOD | {"parameters_schema": schema})


def test_a_schema_nested_beyond_reason_is_a_finding() -> None:
    schema: dict[str, Any] = {}
    for _ in range(300):
        schema = {"properties": {"a": schema}}
    assert "invalid_schema" in codes(GOOD | {"parameters_schema": schema})


def entries_of(path: Path) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    for entry in entries:
        decode_skill(entry)
    return entries


def counts(entries: list[dict[str, Any]]) -> dict[str, int]:
    found = [finding.code for finding in review(entries)]
    return {code: found.count(code) for code in sorted(set(found))}


def test_real_mcp_tools(shared: Path) -> None:
    """What docs/registry-review.md reports and judges."""
    assert counts(entries_of(shared / "data/registry/livemcpbench.jsonl")) == ENGLISH


def test_real_chinese_tools(shared: Path) -> None:
    assert counts(entries_of(shared / "data/ranking/acebench_zh_skills.jsonl")) == CHINESE
