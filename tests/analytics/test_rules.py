"""Alert rules: what the shipped ones say, and that every mistake is told with its line."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from analytics.rules import RuleError, load_rules, parse_rules

GOOD = """\
rules:
  - name: too_many_failures
    metric: failed_tool_rate
    by: [skill]
    window: 5m
    comparison: ">"
    threshold: 0.5
    for: 30s
    min_n: 20
    severity: critical
"""


def test_the_shipped_rules_are_valid_and_complete() -> None:
    rules = {rule.name: rule for rule in load_rules()}
    assert set(rules) == {
        "fallback_usage",
        "half_failure",
        "hallucinated_tools",
        "embedding_drift",
        "failed_tools",
        "zero_picks",
        "rerank_p99",
        "no_events",
    }
    assert rules["fallback_usage"].window <= timedelta(minutes=2)
    assert all(rule.description for rule in rules.values())


def test_a_rule_is_read_with_its_defaults() -> None:
    (rule,) = parse_rules(GOOD)
    assert (rule.window, rule.for_, rule.resolve) == (timedelta(minutes=5), timedelta(seconds=30), timedelta(0))
    assert (rule.by, rule.field, rule.no_data) == (["skill"], "value", "ok")


@pytest.mark.parametrize(
    ("comparison", "breached"), [(">", [False, False, True]), (">=", [False, True, True]), ("<", [True, False, False])]
)
def test_comparisons(comparison: str, breached: list[bool]) -> None:
    (rule,) = parse_rules(GOOD.replace('">"', f'"{comparison}"'))
    assert [rule.breached(value) for value in (0.4, 0.5, 0.6)] == breached


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "    severity: critical",
            '    severity: critical\n    silence:\n      - "22:00-06:00"\n      - "22-6"',
            "r.yaml:13: rules[0].silence[1]: expected hours of UTC such as 22:00-06:00 or sat,sun 00:00-24:00;"
            " got '22-6'",
        ),
        (
            "window: 5m",
            "window: soon",
            "r.yaml:5: rules[0].window: expected a duration such as 30s, 5m, 2h or 1d; got 'so",
        ),
        ("window: 5m", "window: 0s", "r.yaml:5: rules[0].window: "),
        ("threshold: 0.5", "threshold: high", "r.yaml:7: rules[0].threshold: "),
        ('comparison: ">"', "comparison: above", "r.yaml:6: rules[0].comparison: "),
        ("metric: failed_tool_rate", "metric: failures", "r.yaml:3: rules[0].metric: expected one of acceptance_rate"),
        ("by: [skill]", "by: [skill, planet]", "r.yaml:4: rules[0].by: expected one of "),
        ("min_n: 20", "min_n: 0", "r.yaml:9: rules[0].min_n: "),
        (
            "severity: critical",
            "severity: critical\n    sevrity: x",
            "r.yaml:11: rules[0].sevrity: expected one of name, ",
        ),
        ("for: 30s", "for: 30s\n    for: 40s", "r.yaml:9: rules[0].for: given twice"),
        ("name: too_many_failures", "name: Too many", "r.yaml:2: rules[0].name: expected lower-case"),
        ("name: too_many_failures", "name: skill_status", "r.yaml:2: rules[0].name: skill_status is taken"),
        ("    severity: critical\n", "", "r.yaml:2: rules[0].severity: field required"),
        ("rules:", "rule:", "r.yaml:1: rule: expected only the key `rules`"),
        ("  - name: too_many", "  - name: [", "r.yaml:"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_field(before: str, after: str, message: str) -> None:
    assert before in GOOD
    with pytest.raises(RuleError) as error:
        parse_rules(GOOD.replace(before, after), "r.yaml")
    assert str(error.value).startswith(message)


def test_all_mistakes_are_told_at_once() -> None:
    second = GOOD.removeprefix("rules:\n").replace("window: 5m", "window: x")
    with pytest.raises(RuleError) as error:
        parse_rules(GOOD.replace("threshold: 0.5", "threshold: y") + second + GOOD.removeprefix("rules:\n"), "r.yaml")
    assert [line.split(": ")[0] for line in str(error.value).splitlines()] == ["r.yaml:7", "r.yaml:14"]


def test_two_rules_of_one_name_are_refused() -> None:
    with pytest.raises(RuleError, match=r"r.yaml:11: rules\[1\].name: 'too_many_failures' is given twice"):
        parse_rules(GOOD + GOOD.removeprefix("rules:\n"), "r.yaml")


@pytest.mark.parametrize("text", ["", "- a\n", "rules: 3\n", "rules:\n  - 3\n"])
def test_other_shapes_are_refused(text: str) -> None:
    with pytest.raises(RuleError, match=r"rules.yaml:\d+: "):
        parse_rules(text)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="expected a readable UTF-8 file"):
        load_rules(tmp_path / "none.yaml")
