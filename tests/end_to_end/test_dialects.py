"""What the recordings carry is what the tables tell: the matrix of docs/dialects.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.dialect_matrix import MISSED, PAGE, PRESENT, Told, found, matrix, page_with


@pytest.fixture(scope="module")
def told(shared: Path) -> dict[str, Told]:
    return found(shared)


def test_every_recording_is_counted(told: dict[str, Told]) -> None:
    assert told.keys() == PRESENT.keys()


@pytest.mark.parametrize("name", PRESENT)
def test_what_a_recording_carries_is_found_and_nothing_else(told: dict[str, Told], name: str) -> None:
    assert told[name] == PRESENT[name]._replace(**MISSED.get(name, {}))


def test_the_page_has_the_matrix(told: dict[str, Told]) -> None:
    assert PAGE.read_text() == page_with(matrix(told)), "run: python -m tests.end_to_end.dialect_matrix"
