"""Paths into JSON and texts with such paths."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pickwise.json_path import json_path, template

DOCUMENT = {"a": [{"b": 1, "c d": [2, 3]}, {"b": 4}], "e": {"f.g": 5, "*": 6}, "none": []}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a[*].b", [1, 4]),
        ("$.a[*].b", [1, 4]),
        ("a[1].b", [4]),
        ("a[*].c d[*]", [2, 3]),
        ("e['f.g']", [5]),
        ("e['*']", [6]),
        ("$", [DOCUMENT]),
        ("none[*]", []),
        ("none[*].b", []),
        ("none[0]", None),
        ("a.b", None),
        ("a[*].x", None),
        ("e[*]", None),
        ("x", None),
    ],
)
def test_a_path_finds_its_values(path: str, found: list[Any] | None) -> None:
    assert json_path(path).find(DOCUMENT) == found


def test_a_path_into_a_bare_list() -> None:
    assert json_path("[*]").find([1, 2]) == [1, 2]
    assert json_path("[0].a").first([{"a": 1}]) == 1


@pytest.mark.parametrize(
    "text", ["", " ", "a..b", "a[", "a[x]", "a[-1]", "a]", ".", "a.", "[*]b", "{a}", "a[99999999999]"]
)
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a JSON path"):
        json_path(text)


def test_a_template_fills_in_its_fields() -> None:
    text = template("{server.name}/{tool}")
    assert text.fields == ("server", "tool")
    assert text.fill({"server": {"name": "mail"}, "tool": "send"}) == "mail/send"
    assert template("v{n}{{}}").fill({"n": 2}) == "v2{}"


@pytest.mark.parametrize("document", [{}, {"a": ""}, {"a": None}, {"a": True}, {"a": ["b"]}, {"a": 1.5}, [], "a", None])
def test_a_template_without_its_fields_is_none(document: Any) -> None:
    assert template("{a}").fill(document) is None


@pytest.mark.parametrize("text", ["", "plain", "{}", "{a", "a}", "{a!r}", "{a:>5}", "{a[*]}", "{a..b}"])
def test_what_is_no_template_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a"):
        template(text)


KEYS = st.text(alphabet="ab_- 中", min_size=1, max_size=4).filter(lambda key: key.strip() == key)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


@given(keys=st.lists(KEYS, min_size=1, max_size=4), value=JSON)
def test_a_path_of_keys_leads_to_what_stands_there(keys: list[str], value: Any) -> None:
    document = value
    for key in reversed(keys):
        document = {key: document, "other": 0} if key != "other" else {key: document}
    assert json_path(".".join(keys)).find(document) == [value]


@given(document=JSON, path=st.lists(KEYS | st.sampled_from(["[*]", "[0]"]), min_size=1, max_size=4))
def test_no_document_stops_a_path(document: Any, path: list[str]) -> None:
    text = "$" + "".join(step if step.startswith("[") else f".{step}" for step in path)
    found = json_path(text).find(document)
    assert found is None or isinstance(found, list)
