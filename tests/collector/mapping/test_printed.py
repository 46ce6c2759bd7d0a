"""What is read of Python's own notation, and that hostile text ends soon and harmlessly."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.mapping.printed import PrintedObject, literal, printed_object, printed_tool


def test_a_data_class_with_what_nests_in_it() -> None:
    text = "Message(role=<Role.USER: 'user'>, parts=[Text(text='a'), Call(id=None, n=-1.5, ok=True)], meta={'k': (1,)})"
    found = printed_object(text, "Message")
    assert found == PrintedObject(
        "Message",
        {
            "role": "user",
            "parts": [PrintedObject("Text", {"text": "a"}), PrintedObject("Call", {"id": None, "n": -1.5, "ok": True})],
            "meta": {"k": [1]},
        },
    )


def test_what_looks_like_a_member_inside_a_string_stays() -> None:
    found = printed_object("""M(a='<Role.USER: \\'user\\'>', b="it's <A: 1>")""", "M")
    assert found is not None
    assert found.fields == {"a": "<Role.USER: 'user'>", "b": "it's <A: 1>"}


def test_nothing_is_evaluated_and_what_json_lacks_is_left_out() -> None:
    found = printed_object("M(a=open('x').read(), b=1 + 1, c=..., d=b'x', e=99999999999999999999)", "M")
    assert found is not None
    assert found.fields == {"a": None, "b": None, "c": None, "d": None, "e": "99999999999999999999"}


@pytest.mark.parametrize(
    "text",
    [
        "Other(a=1)",
        "M(a=1",
        "M(a=<object at 0x7f>)",
        "M(" + "[" * 100_000,
        "M(a=" + "-" * 19_000 + "1)",
        "M(a=" + "a." * 9_000 + "b)",
        "M(a=" + "not " * 30_000 + "1)",
        "M(" + "'\\" * 300_000,
        "M(a=" + "<A: '" * 100_000,
        "M(a='\x00')",
        "M(a='\ud800",
    ],
)
def test_text_that_prints_no_such_object(text: str) -> None:
    found = printed_object(text, "M")
    # Newer Pythons parse deeper, and find an object that says nothing.
    assert found is None or not any(found.fields.values())


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), values))
def test_whatever_plain_data_is_printed_is_read_again(fields: dict[str, Any]) -> None:
    text = "M(" + ", ".join(f"{name}={value!r}" for name, value in fields.items()) + ")"
    found = printed_object(text, "M")
    assert found is not None
    assert found.fields == fields


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    found = printed_object(f"M({text}", "M")
    assert found is None or isinstance(found, PrintedObject)
    literal(text)


def test_tools_as_frameworks_print_them() -> None:
    assert printed_tool("name='get' description=\"it's\" env_vars=[] func=<function f at 0x7f>") == ("get", "it's")
    assert printed_tool("Tool(name='get', description='Gets.', parameters={'a': 1})") == ("get", "Gets.")
    assert printed_tool("name='get' args_schema=<class 'x'>") == ("get", None)
    assert printed_tool("name= description='x'") is None
    assert printed_tool("name='never closed") is None
