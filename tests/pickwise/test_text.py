"""Words: how names and texts become terms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pickwise.text import STOP_WORDS, script, split_name, terms


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("getUserHTTPStatus", "get User HTTP Status"),
        ("get_user-http.status", "get user http status"),
        ("server/tool_name", "server tool name"),
        ("天气查询", "天气查询"),
    ],
)
def test_names_are_split(name: str, words: str) -> None:
    assert split_name(name) == words


def test_english_is_stemmed_and_lower_cased() -> None:
    assert terms("Flights flying to Flights") == [terms("flight")[0], terms("fly")[0], terms("flights")[0]]


def test_stop_words_are_few() -> None:
    assert terms("the price of a cat") == terms("price cat")
    # These tell tools apart: a stock list drops them.
    assert len(terms("how up all not before")) == 5
    assert "how" not in STOP_WORDS


def test_chinese_is_characters_and_bigrams() -> None:
    assert terms("查天气") == ["查", "天", "气", "查天", "天气"]


def test_mixed_scripts() -> None:
    assert terms("用Excel做表") == ["用", terms("excel")[0], "做", "表", "做表"]


def test_identifiers_are_split_at_case() -> None:
    assert terms("CapitalWeatherChecker") == terms("capital weather checker")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("where is my parcel", "latin"),
        ("我的快递到哪了", "cjk"),
        ("用 Excel 做一个表", "cjk"),
        ("café à Zürich", "latin"),
        ("где моя посылка", "other"),
        ("123 !", "other"),
        ("", "other"),
    ],
)
def test_script(text: str, expected: str) -> None:
    assert script(text) == expected


@given(st.text(max_size=200))
def test_any_text_has_terms_without_blanks(text: str) -> None:
    assert all(term and not term.isspace() for term in terms(text))
    assert script(text) in ("latin", "cjk", "other")


@given(st.text(max_size=80))
def test_terms_do_not_depend_on_surrounding_punctuation(text: str) -> None:
    assert terms(f" ,{text}. ") == terms(text)
