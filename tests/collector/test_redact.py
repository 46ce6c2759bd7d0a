"""What is kept of texts and arguments, and what is not."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.redact import MASKS, MAX_ARGUMENTS_BYTES, Mask, Redactor
from pickwise.events import MAX_ERROR_MESSAGE_BYTES, MAX_QUERY_BYTES
from pickwise.settings import Settings

KEY = b"k" * 32
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"


def redactor(**changes: object) -> Redactor:
    return Redactor(Settings.model_validate(changes), KEY)


@pytest.mark.parametrize(
    ("text", "kept", "kind"),
    [
        ("mail ann.lee+x@example.co.uk now", "mail [email] now", "email"),
        ("发到li@example.cn吧", "发到[email]吧", "email"),
        ("密码是hunter2hunter。", "密码是[secret]。", "secret"),
        ("call +49 30 901820 today", "call [phone] today", "phone"),
        ("call (415) 555-0132 today", "call [phone] today", "phone"),
        ("电话13812345678谢谢", "电话[phone]谢谢", "phone"),
        ("card 4111 1111 1111 1111 please", "card [card] please", "card"),
        ("card 4111-1111-1111-1111", "card [card]", "card"),
        ("身份证11010519491231002X。", "身份证[id_number]。", "id_number"),
        ("ssn 078-05-1120", "ssn [id_number]", "id_number"),
        ("from 192.168.1.20", "from [ip_address]", "ip_address"),
        ("key AKIAIOSFODNN7EXAMPLE", "key [aws_key]", "aws_key"),
        ("use sk-proj-abcDEF0123456789abcDEF", "use [api_key]", "api_key"),
        ("use ghp_0123456789abcdefghijABCDEFGHIJ012345", "use [api_key]", "api_key"),
        (f"jwt {JWT} end", "jwt [jwt] end", "jwt"),
        ("Authorization: Bearer abcdef0123456789", "Authorization: Bearer [bearer_token]", "bearer_token"),
        ('{"password": "hunter2hunter"}', '{"password": "[secret]"}', "secret"),
        ("api_key=abcdef12345", "api_key=[secret]", "secret"),
        ("postgres://bob:pa55word@db/x", "postgres://[url_password]@db/x", "url_password"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- ok",
            "[private_key] ok",
            "private_key",
        ),
    ],
)
def test_secrets_and_personal_data_are_masked(text: str, kept: str, kind: str) -> None:
    subject = redactor()
    assert subject.text(text) == kept
    assert subject.counts[kind] == 1


@pytest.mark.parametrize(
    "text",
    [
        "What is the weather in Paris and how much is 100 USD in EUR?",
        "帮我预订上海的酒店两晚，并查询当地天气",
        "order 1234567890123456 of 2024-05-17",  # sixteen digits, but no card: the check digit is wrong
        "version 2.68.0, flight HAT156, 12:30, 300.400.500.600",
        "the sk-learn-based pipeline and pk_column_with_a_long_name",
        "e-mail me @ noon",
    ],
)
def test_ordinary_texts_stay(text: str) -> None:
    subject = redactor()
    assert subject.text(text) == text
    assert not subject.counts


def test_argument_values_become_type_and_length() -> None:
    subject = redactor(allow_arguments=["unit", "get_weather:days"])
    arguments = {"city": "Paris", "unit": "celsius", "days": 3, "tags": [1, 2], "deep": {"a": 1}, "on": True, "x": None}
    assert subject.arguments("get_weather", arguments) == (
        '{"city":"string(5)","unit":"celsius","days":3,"tags":"array(2)","deep":"object(1)","on":"boolean","x":"null"}'
    )
    assert subject.counts["argument"] == 5
    assert subject.arguments("other_tool", {"days": 3}) == '{"days":"number"}'
    assert subject.arguments("t", "raw text") == '"string(8)"'
    assert subject.arguments("t", None) is None


def test_very_many_arguments_keep_no_more_than_the_limit() -> None:
    kept = redactor().arguments("t", {f"name{i}": "x" for i in range(5_000)})
    assert kept is not None
    assert len(kept) < MAX_ARGUMENTS_BYTES
    assert "too_long" in kept


def test_an_error_does_not_repeat_what_its_call_was_given() -> None:
    subject = redactor(allow_arguments=["city"])
    message = "no rooms for Ann Example in Paris, request {'guest': 'Ann Example', 'phone': 5550132999}"
    arguments = {"guest": "Ann Example", "city": "Paris", "phone": 5550132999}
    assert subject.error_message(message, "book", arguments) == (
        "no rooms for [argument] in Paris, request {'guest': '[argument]', 'phone': [argument]}"
    )


@pytest.mark.parametrize(
    "message",
    [
        "Input should be a number [type=float_parsing, input_value='geheim', input_type=str]\n  For more",
        "Error invoking tool 'x' with kwargs {'note': 'geheim'} with error:\n amount: wrong",
        'Invalid input for tool x: Type validation failed: Value: {"note":"geheim"}.\nError message: expected number',
        'Invalid input for tool x: JSON parsing failed: Text: {"note": "geheim".\nError message: Expected }',
    ],
)
def test_nor_what_a_library_quotes_of_it(message: str) -> None:
    kept = redactor().error_message(message, "x")
    assert "geheim" not in kept
    assert "[argument]" in kept


def test_texts_are_cut_after_they_are_masked() -> None:
    subject = redactor()
    query, truncated = subject.query("长" * MAX_QUERY_BYTES)
    assert truncated
    assert len(query.encode()) <= MAX_QUERY_BYTES
    edge = "x" * (MAX_ERROR_MESSAGE_BYTES - 5) + " ann@example.com"
    assert "ann@" not in subject.error_message(edge, "t")


def test_a_hashed_query_is_a_keyed_hash_and_nothing_else() -> None:
    subject = redactor(store_queries="hash")
    kept, _ = subject.query("weather in Paris")
    assert "weather" not in kept
    assert kept == subject.query("weather in Paris")[0]
    assert kept != Redactor(Settings(store_queries="hash"), b"other" * 8).query("weather in Paris")[0]
    assert subject.counts["query"] == 2


@settings(deadline=None)
@given(st.text(max_size=300))
def test_masking_any_text_never_fails_and_is_settled_at_once(text: str) -> None:
    subject = redactor()
    masked = subject.text(text)
    assert subject.text(masked) == masked


@pytest.mark.parametrize(
    "text", ["1 " * 30_000, "a@" * 30_000, "+1 " * 20_000, "1." * 30_000, "token " * 10_000, "A" * 60_000]
)
def test_no_text_takes_long(text: str) -> None:
    start = time.process_time()
    redactor().error_message(text, "t")
    assert time.process_time() - start < 2


PARTS = st.sampled_from(
    [
        *("password", "token", "密码", "api-key", " is ", "是", ":", "：", "=", " ", "hunter2", "AKIAIOSFODNN7EXAMPLE"),
        *("ghp_0123456789abcdefghijABCDEFGHIJ012345", "AIza" + "x" * 30, "ann@example.com", "://", "4111111111111111"),
        *("192.168.1.20", "Bearer abcdef0123456789", JWT, "-----BEGIN PRIVATE KEY-----", "sk-", "abc1" * 5, "\n"),
    ]
)


@settings(deadline=None)
@given(st.lists(PARTS | st.text(max_size=5), max_size=8).map("".join))
def test_hints_and_memory_change_nothing(text: str) -> None:
    every: Counter[str] = Counter()
    masked = text
    for mask in MASKS:

        def replaced(found: re.Match[str], mask: Mask = mask) -> str:
            if mask.check is not None and not mask.check(found[0]):
                return found[0]
            every[mask.name] += 1
            before = found[0][: found.start(1) - found.start()] if mask.pattern.groups else ""
            return f"{before}[{mask.name}]"

        masked = mask.pattern.sub(replaced, masked)
    subject = redactor()
    assert [subject.text(text), subject.text(text)] == [masked, masked]
    assert subject.counts == every + every


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=100), st.binary(max_size=300))
def test_a_digest_is_an_hmac(key: bytes, data: bytes) -> None:
    assert Redactor(Settings(), key).digest(data) == hmac.new(key, data, hashlib.sha256).hexdigest()[:32]


@pytest.mark.parametrize(
    "number",
    ["+1 (415) 555-2671", "+44 20 7946 0958", "+86 138 0013 8000", "+49.30.123456", "+4930123456", "(415) 555-2671"],
)
def test_numbers_that_are_written_as_telephone_numbers_are_masked(number: str) -> None:
    assert Redactor(Settings(), KEY).text(f"call {number}, please") == "call [phone], please"


@pytest.mark.parametrize("text", ["+5 3 2 1 4 6", "+1 2 3 4 5 6 7 8 9 10", "+12", "a+1415555"])
def test_other_numbers_are_not(text: str) -> None:
    assert Redactor(Settings(), KEY).text(text) == text


def test_an_error_beside_very_many_values_is_not_kept() -> None:
    arguments = {f"a{number}": f"value-{number}" for number in range(1_001)}
    assert Redactor(Settings(), KEY).error_message("no value-7 here", "s", arguments) == "string(15)"
    assert Redactor(Settings(), KEY).error_message("no value-7 here", "s", {"a": "value-7"}) == "no [argument] here"
