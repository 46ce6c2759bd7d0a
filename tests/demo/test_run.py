"""What the demo hands to the service that is started for it."""

from __future__ import annotations

from datetime import timedelta

from analytics.rules import load_rules
from demo.run import FALLBACK_RULE, OUTAGE_LONGEST_S, RESOLVE_LONGEST_S, alert_rules_path


def test_the_rules_are_valid_and_fit_into_the_demo() -> None:
    rules = {rule.name: rule for rule in load_rules(alert_rules_path())}
    fallback = rules[FALLBACK_RULE]
    assert fallback.for_ < timedelta(seconds=OUTAGE_LONGEST_S)
    assert fallback.window + fallback.resolve < timedelta(seconds=RESOLVE_LONGEST_S)


def test_the_shipped_rules_are_all_there_but_those_that_need_longer() -> None:
    assert {rule.name for rule in load_rules(alert_rules_path())} <= {rule.name for rule in load_rules()}
