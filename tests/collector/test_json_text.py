"""JSON with one bad value in it: what is good is read, and an array falls into its items whatever they are."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.json_text import MAX_DEPTH, decode, is_deep, split_array

VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(st.characters(codec=None), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@given(st.lists(VALUES, max_size=5), st.sampled_from([None, 2]))
def test_an_array_falls_into_its_items(values: list[Any], indent: int | None) -> None:
    body = json.dumps(values, indent=indent).encode()
    assert [repr(json.loads(bytes(item))) for item in split_array(body)] == [repr(value) for value in values]


@pytest.mark.parametrize("bad", [b"NaN", b'"\\ud800"', b"1e999", b"nonsense", b'{"a" 1}', b"", nested(100_000)])
def test_an_item_that_is_no_json_takes_no_other_with_it(bad: bytes) -> None:
    items = split_array(b' [ {"a": "],["}, ' + bad + b', "\\"," ] ')
    assert [bytes(item).strip() for item in items] == [b'{"a": "],["}', bad, b'"\\","']


@pytest.mark.parametrize("body", [b"", b"[", b"[NaN", b"[NaN]]", b"[NaN] x", b'["', b"{}", b"x[NaN]", b"]["])
def test_a_body_that_is_no_whole_array(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        split_array(body)


def test_bad_values_are_read_as_what_they_are() -> None:
    found = decode(b'{"a": [NaN, -1e999], "b\\ud800": "\\udfff\xff", "c": "\\ud83d\\ude00"}')
    assert math.isnan(found["a"][0])
    assert found["a"][1] == -math.inf
    assert (found["b\ufffd"], found["c"]) == ("\ufffd\ufffd", "\U0001f600")


@pytest.mark.parametrize("body", [b"", b"{", b"nonsense", b"9" * 5_000, nested(100_000), b"[NaN," + nested(100_000)])
def test_what_is_no_json_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(body)


def test_depth_is_counted_outside_strings() -> None:
    assert not is_deep(nested(MAX_DEPTH))
    assert is_deep(nested(MAX_DEPTH + 1))
    assert is_deep(b'{"a":' * (MAX_DEPTH + 1))
    assert not is_deep(json.dumps(["[" * 1_000, "]", "\\", '"[['] * 10).encode())
    assert not is_deep(b"[" + b",".join([b"[]"] * 1_000) + b"]")
