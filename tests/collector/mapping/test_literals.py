"""Plain data in Python's notation, and what must stay text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.mapping.literals import MAX_CHARS, MAX_DEPTH, from_literal

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    # Surrogates are no text that JSON holds.
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=5), PLAIN, max_size=5) | st.lists(PLAIN, max_size=5))
def test_what_python_prints_is_read_back(value: Any) -> None:
    assert from_literal(repr(value)) == value


@given(st.text(st.sampled_from("{}[]()'\"\\,:-+1eE.xTrueNa \n"), max_size=60))
def test_no_text_raises(text: str) -> None:
    found = from_literal(text)
    assert found == text or isinstance(found, dict | list)


def test_tuples_are_lists() -> None:
    assert from_literal("({'a': (1, 2)},)") == [{"a": [1, 2]}]


@pytest.mark.parametrize(
    "text",
    [
        "plain text",
        "'a string'",
        "12",
        "{'a': 'unterminated}",
        "{'a': open('/etc/passwd')}",
        "{'a': __import__('os').system('true')}",
        "{'a': b}",
        "{'a': b'bytes'}",
        "{'a': 1 + 1}",
        "{'a': 9 ** 9}",
        "{'a': [x for x in (1,)]}",
        "{1, 2}",
        "{1: 2}",
        "{'a': 1e999}",
        f"{{'a': {2**63}}}",
        "{'a': <Tool object at 0x7f>}",
        "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
        "[" * 100_000,
        "{'a': " + "-" * 60_000 + "1}",
        "['" + "a" * MAX_CHARS + "']",
    ],
)
def test_other_text_stays_text(text: str) -> None:
    assert from_literal(text) is text


def test_the_bounds_themselves_are_allowed() -> None:
    assert from_literal("[" * MAX_DEPTH + "]" * MAX_DEPTH) != "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert from_literal("['" + "a" * (MAX_CHARS - 4) + "']") == ["a" * (MAX_CHARS - 4)]
