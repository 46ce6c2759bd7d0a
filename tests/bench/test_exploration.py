"""The table of the exploration bench; what it promises is in tests/discovery/test_explore.py."""

from __future__ import annotations

import pytest

from bench.exploration import main


def test_the_table_has_a_row_for_each_setting(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--seeds", "1", "--watched", "250"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith(("| off", "| on"))]
    assert [(row[0], row[1], row[3]) for row in rows] == [
        ("| off", "0", "0"),
        ("| on", "0", "1"),
        ("| on", "1", "1"),
        ("| on", "3", "1"),
    ]
