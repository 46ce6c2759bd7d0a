from __future__ import annotations

import pytest

from ranker.labels import label, outcome_of


@pytest.mark.parametrize(
    ("picked", "calls", "expected"),
    [
        (False, [], 0),
        (True, [(True, None)], 2),
        (True, [(False, "timeout"), (True, None)], 2),
        (True, [], 1),
        (True, [(None, None)], 1),
        (True, [(False, "invalid_arguments")], 1),
        (True, [(False, "tool_error")], 0),
        (True, [(False, "cancelled"), (False, "http_5xx")], 0),
    ],
)
def test_labels(picked: bool, calls: list[tuple[bool | None, str | None]], expected: int) -> None:
    assert label(picked, outcome_of(calls)) == expected
