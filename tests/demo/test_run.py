"""What the demo hands to the service that is started for it."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta

import httpx

from analytics.rules import load_rules
from demo.library import library
from demo.run import FALLBACK_RULE, FIRING, OUTAGE_LONGEST_S, RESOLVE_LONGEST_S, _Outage, _Stage, alert_rules_path
from discovery.registry import REGISTRY_PATH
from discovery.router import MIN_REQUESTS
from pickwise.settings import load_settings
from tests.discovery.service import service


def test_the_rules_are_valid_and_fit_into_the_demo() -> None:
    rules = {rule.name: rule for rule in load_rules(alert_rules_path())}
    fallback = rules[FALLBACK_RULE]
    assert fallback.for_ < timedelta(seconds=OUTAGE_LONGEST_S)
    assert fallback.window + fallback.resolve < timedelta(seconds=RESOLVE_LONGEST_S)


def test_the_shipped_rules_are_all_there_but_those_that_need_longer() -> None:
    assert {rule.name for rule in load_rules(alert_rules_path())} <= {rule.name for rule in load_rules()}


def test_an_outage_that_outlasts_few_turns_is_over_before_what_comes_next() -> None:
    registry = {"registry_version": "r", "skills": library()[:20]}
    alerts = {"alerts": [{"rule": FALLBACK_RULE, "state": FIRING}]}
    with ExitStack() as stack:
        running = stack.enter_context(service(documents={REGISTRY_PATH: registry, "/v1/alerts": alerts}))
        http = stack.enter_context(httpx.Client(base_url=running.url))
        stage = _Stage.open(running.url, load_settings(), 7, http, stack)
        outage = _Outage(stage, 0)
        outage.step(0)
        for _ in range(2 * MIN_REQUESTS):
            stage.layer.search("where is my parcel")
        assert (stage.embedder.down, stage.routes[-1:]) == (True, ["degraded"])
        outage.end()
        assert (stage.embedder.down, stage.layer.router.degraded_reason) == (False, None)
        assert stage.routes[-1] == "recovered"
