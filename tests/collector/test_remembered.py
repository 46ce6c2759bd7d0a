"""What is remembered has bounds, whatever is to be remembered."""

from __future__ import annotations

import pytest

from collector import remembered as module
from collector.remembered import Remembered, once_a_word


def test_what_was_kept_is_found_until_the_place_is_full() -> None:
    found: Remembered[tuple[str, ...], int] = Remembered(3)
    for number in range(3):
        found.keep((str(number),), number)
    assert [found.get((str(number),)) for number in range(3)] == [0, 1, 2]
    found.keep(("3",), 3)
    assert found == {("3",): 3}


def test_long_keys_are_not_kept_and_many_long_ones_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_KEY", 10)
    monkeypatch.setattr(module, "_MAX_TEXT", 25)
    found: Remembered[tuple[object, ...], int] = Remembered(100)
    found.keep(("12345", "123456"), 0)
    assert not found
    found.keep(("1" * 9, None), 1)
    found.keep(("2" * 9, True), 2)
    assert len(found) == 2
    found.keep((b"3" * 9, 5), 3)
    assert list(found.values()) == [3]


def test_a_value_counts_what_it_was_made_of() -> None:
    found: Remembered[tuple[str], int] = Remembered(100, 25)
    found.keep(("a",), 1, weight=20)
    found.keep(("b",), 2, weight=5)
    assert len(found) == 2
    found.keep(("c",), 3, weight=1)
    assert found == {("c",): 3}
    found.keep(("d",), 4, weight=module._MAX_KEY + 1)
    assert ("d",) not in found


def test_only_words_are_remembered() -> None:
    asked: list[str] = []

    @once_a_word
    def is_long(text: str) -> bool:
        asked.append(text)
        return len(text) > 3

    assert [is_long(text) for text in ("word", "word", "x" * 10**6, "x" * 10**6, "ab")] == [True] * 4 + [False]
    assert [len(text) for text in asked] == [4, 10**6, 10**6, 2]
