"""Whether a chain could be run as a template: each check finds what it is for, and says so."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from analytics.chains_checks import CHECKS, load_checker, output_names, required_inputs
from tests.analytics.conftest import NOON, House, entry


def needs(*names: str, **fields: Any) -> dict[str, Any]:
    properties = {name: {"type": "string"} for name in names}
    return {"parameters_schema": {"type": "object", "properties": properties, "required": list(names)}} | fields


HARMLESS = {"side_effect": {"read_only": True}}
FIND = needs("name", outputs={"type": "object", "properties": {"order_id": {}}}, **HARMLESS)
READ = needs("orderId", outputs=["state"], **HARMLESS)


def checked(house: House, first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    house.write(entry("first", **first), entry("second", **second))
    return load_checker(house.connect(), "default", NOON).check(["first", "second"])


def test_a_chain_that_the_registry_tells_all_about_is_feasible(house: House) -> None:
    found = checked(house, FIND, READ)
    assert found == {
        "feasible": "yes",
        "checks": [{"check": name, "verdict": "ok", "reason": fine} for name, (_, fine) in CHECKS.items()],
    }


@pytest.mark.parametrize(
    ("first", "second", "check", "verdict", "reason"),
    [
        ({}, {"is_active": False}, "active", "no", "second is retired"),
        ({}, {"freshness": "down"}, "healthy", "no", "second is down, says its owner"),
        ({}, needs("title"), "inputs", "no", "second requires title, which no step before it takes or gives"),
        ({}, needs("name"), "inputs", "ok", None),  # the first one was given it
        (
            {"outputs": None},
            READ,
            "inputs",
            "unknown",
            "second requires orderId: the registry doesn't say what first gives",
        ),
        (
            {},
            {"parameters_schema": None},
            "inputs",
            "unknown",
            "second: the registry doesn't say what it requires",
        ),
        ({"dependencies": ["second"]}, {}, "order", "no", "first depends on second, which comes after it"),
        ({}, {"dependencies": ["first"]}, "order", "ok", None),
        ({}, {"dependencies": ["login"]}, "order", "unknown", "second depends on login, which is not in the chain"),
        ({"preconditions": ["paid"]}, {}, "order", "unknown", "first has a precondition: paid"),
        (
            {},
            {"side_effect": {"destructive": True}},
            "effects",
            "no",
            "second is destructive and not declared idempotent",
        ),
        ({}, {"side_effect": {"destructive": True, "idempotent": True}}, "effects", "ok", None),
        ({}, {"side_effect": {"destructive": False}}, "effects", "ok", None),
        (
            {},
            {"side_effect": {"read_only": False}},
            "effects",
            "unknown",
            "second: the registry doesn't say whether it destroys anything",
        ),
        (
            {"side_effect": {"read_only": True, "asynchronous": True}},
            {},
            "effects",
            "unknown",
            "first is asynchronous: the step after it may begin too early",
        ),
        ({}, {"side_effect": {"read_only": True, "asynchronous": True}}, "effects", "ok", None),
    ],
)
def test_each_check_says_what_it_found(
    house: House, first: dict[str, Any], second: dict[str, Any], check: str, verdict: str, reason: str | None
) -> None:
    found = checked(house, FIND | first, READ | second)
    (own,) = [c for c in found["checks"] if c["check"] == check]
    assert (own["verdict"], own["reason"]) == (verdict, reason or CHECKS[check][1])
    assert found["feasible"] == ("yes" if verdict == "ok" else verdict)


def test_no_beats_unknown_and_every_reason_of_it_is_told(house: House) -> None:
    found = checked(house, FIND | {"dependencies": ["second"], "side_effect": None}, READ | {"dependencies": ["login"]})
    told = {c["check"]: (c["verdict"], c["reason"]) for c in found["checks"]}
    assert told["order"] == ("no", "first depends on second, which comes after it")
    assert told["effects"][0] == "unknown"
    assert found["feasible"] == "no"


def test_a_skill_that_the_registry_does_not_know(house: House) -> None:
    house.write(entry("first", **FIND))
    found = load_checker(house.connect(), "default", NOON).check(["first", "invented"])
    assert found["checks"][0] == {"check": "active", "verdict": "no", "reason": "invented is not in the registry"}


def test_without_any_registry_nothing_is_known(house: House) -> None:
    found = load_checker(house.connect(), "default", NOON).check(["a", "b"])
    assert found["checks"][0]["reason"] == "the project has no registry"
    assert found["feasible"] == "unknown"


def test_offers_do_not_say_what_must_come_before(house: House) -> None:
    house.write(entry("first", source="observed", **FIND), entry("second", source="observed", **READ))
    found = load_checker(house.connect(), "default", NOON).check(["first", "second"])
    (order,) = [c for c in found["checks"] if c["check"] == "order"]
    assert order["verdict"] == "unknown"
    assert order["reason"].startswith("first: the registry doesn't say what must come before it")


def test_the_registry_is_that_of_the_moment(house: House) -> None:
    house.write(entry("first", **FIND), entry("second", **READ))
    house.write(entry("second", NOON + timedelta(days=1), seq=1, op="retire"))
    for days, verdict in ((0, "ok"), (2, "no")):
        checker = load_checker(house.connect(), "default", NOON + timedelta(days=days))
        assert checker.check(["first", "second"])["checks"][0]["verdict"] == verdict


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (None, None),
        ("text", None),
        ({}, None),
        ([], []),
        (["a", "b"], ["a", "b"]),
        ([{"name": "a", "type": "string"}], ["a"]),
        ([1], None),
        ({"a": "the first", "b": "the second"}, ["a", "b"]),
        ({"type": "object", "properties": {"a": {}}}, ["a"]),
        ({"type": "array", "items": {"type": "object", "properties": {"a": {}}}}, ["a"]),
        ({"type": "array"}, None),
        ({"type": "string"}, None),
    ],
)
def test_outputs_are_read_in_the_forms_that_have_names(outputs: Any, expected: list[str] | None) -> None:
    assert output_names(outputs) == expected


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (None, None),
        ("text", None),
        ({}, []),
        ({"required": ["a"]}, ["a"]),
        ({"required": ["a", "b"], "properties": {"a": {"default": 1}, "b": True}}, ["b"]),
        ({"required": True}, None),
        ({"required": ["a"], "properties": []}, ["a"]),
        ({"required": ["a"], "properties": [1]}, None),
    ],
)
def test_what_a_skill_requires(schema: Any, expected: list[str] | None) -> None:
    assert required_inputs({"parameters_schema": schema}) == expected
