"""Each rule fires on the entry that needs it and stays silent on a good one."""

from __future__ import annotations

import time
from typing import Any

import pytest

from collector.review import confusable_pairs, estimated_tokens, fold_name, review

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


def test_the_same_name_twice_is_an_error() -> None:
    (finding,) = review([GOOD, OTHER | {"name": "get_forecast"}])
    assert (finding.severity, finding.code, finding.skill_id) == ("error", "duplicate_name", "mail/send")
    assert GOOD["skill_id"] in finding.message


def test_names_that_differ_in_case_and_separators_are_near() -> None:
    (finding,) = review([GOOD, OTHER | {"name": "GetForecast"}])
    assert (finding.severity, finding.code) == ("warning", "near_duplicate_name")
    assert fold_name("Get-Forecast") == fold_name("get_forecast") == fold_name("getForecast")


def test_confusable_pairs_come_with_their_jaccard_index() -> None:
    left = {"skill_id": "a", "description": "alpha beta gamma delta"}
    right = {"skill_id": "b", "description": "alpha beta gamma epsilon"}
    far = {"skill_id": "c", "description": "one two three four"}
    ((similarity, one, two),) = confusable_pairs([left, right, far], minimum=0.5)
    assert similarity == pytest.approx(3 / 5)
    assert {one["skill_id"], two["skill_id"]} == {"a", "b"}
    assert "overlapping_description" not in codes(left, far)
    assert codes(left, right | {"description": left["description"]}).count("overlapping_description") == 2


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
