"""JSON with one bad value in it: what is good is read, and an array falls into its items whatever they are."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.body import TooLarge
from collector.json_text import (
    MAX_DEPTH,
    TOO_DEEP,
    decode,
    decode_counting,
    is_deep,
    open_body,
    opened,
    split_array,
    whole,
)

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


def test_numbers_that_are_none_are_counted() -> None:
    assert decode_counting(b'{"a": [NaN, 1e999, 5], "b": {"c": -Infinity}, "d": "NaN"}')[1] == 3
    assert decode_counting(b'{"a": "NaN", "b": 1.5}')[1] == 0


def test_an_array_of_too_many_items() -> None:
    assert len(split_array(b"[0,0,0]", 3)) == 3
    for body in (b"[0,0,0,0]", b"[0,NaN,0,0]", b"[" + b"0," * 5_000_001 + b"0]"):
        with pytest.raises(TooLarge, match="at most 3 items"):
            split_array(body, 3)


def test_text_without_an_end_is_looked_at_once() -> None:
    """Looked at from each of its quotes anew, this would take hours."""
    quotes = b'["' + rb"\"" * 2_000_000
    with pytest.raises(ValueError, match="truncated"):
        split_array(quotes, 10)
    assert not is_deep(quotes)
    with pytest.raises(ValueError, match="truncated"):
        open_body(quotes)


# -- bodies opened level by level -----------------------------------------------------------------------------------


def decoded(value: Any) -> Any:
    """The whole value by way of its levels."""
    value = opened(value)
    if isinstance(value, list):
        return [decoded(item) for item in value]
    return {key: decoded(item) for key, item in value.items()} if isinstance(value, dict) else value


def padded(body: bytes) -> bytes:
    """The same JSON, long enough to be opened by its levels."""
    return body + b" " * 2**20


@given(VALUES)
def test_levels_hold_the_same_as_the_whole(value: Any) -> None:
    body = json.dumps(value).encode()
    assert decoded(open_body(padded(body))) == open_body(body)


def test_a_long_body_stays_text_below_its_first_level() -> None:
    document = open_body(padded(b'{"a": [1, {"b": 2}], "c": "d"}'))
    assert all(isinstance(value, msgspec.Raw) for value in document.values())
    assert [bytes(item) for item in opened(document["a"])] == [b"1", b'{"b": 2}']
    assert whole(document["a"]) == [1, {"b": 2}]
    assert (opened(5), whole(None)) == (5, None)


@pytest.mark.parametrize("pad", [bytes, padded])
def test_a_body_that_is_not_strict_is_mended(pad: Any) -> None:
    numbers = rb'[NaN, -Infinity, 1e999, -1e999, 1.5, "NaN", 12345678901234567890]'
    texts = rb'"t": "\ud800 \\ud800 \ud83d\ude00", "e": "\\", "u": "' + b'\xff"'
    found = decoded(open_body(pad(b'{"n": ' + numbers + b", " + texts + b"}")))
    assert found == {
        "n": ["NaN", "-Infinity", "Infinity", "-Infinity", 1.5, "NaN", 12345678901234567890],
        "t": "\ufffd \\ud800 \U0001f600",
        "u": "\ufffd",
        "e": "\\",
    }


@pytest.mark.parametrize("pad", [bytes, padded])
def test_what_is_nested_too_deep_is_cut_out_alone(pad: Any) -> None:
    found = decoded(open_body(pad(b'{"deep": ' + nested(100_000) + b', "odd": NaN, "good": 1}')))
    assert (found["odd"], found["good"]) == ("NaN", 1)
    core = found["deep"]
    while isinstance(core, list):
        (core,) = core
    assert core == TOO_DEEP


@pytest.mark.parametrize("pad", [bytes, padded])
@pytest.mark.parametrize("body", [b"", b"{", b"nonsense", b'{"a" 1}', b"[1 2]", b"01", b"-", b"N", b"[" * 9_000])
def test_a_body_that_is_no_json(body: bytes, pad: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        decoded(open_body(pad(body)))
