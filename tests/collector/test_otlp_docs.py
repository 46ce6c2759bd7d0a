"""docs/otlp.md says what the code does: its limits are the constants, its statuses those of OpenAPI."""

from __future__ import annotations

import re

import pytest

from collector import events_in, mapping, otlp_limits, problems, weight
from collector.mapping import conversation
from pickwise.events import MAX_EVENT_BYTES, MAX_REQUEST_BYTES
from tests.collector.test_service import ROOT

PAGE = (ROOT / "docs" / "otlp.md").read_text()
LIMITS = {
    "a request, before and after decompression": f"{MAX_REQUEST_BYTES // 2**20} MiB",
    "spans or log records in a request": f"{otlp_limits.MAX_RECORDS:,}",
    "resources and scopes in a request": f"{otlp_limits.MAX_GROUPS:,}",
    "protobuf messages in a request": f"{weight.MAX_MESSAGES:,}",
    "JSON values in a request": f"{weight.MAX_VALUES:,}",
    "levels of nesting": f"{otlp_limits.MAX_DEPTH:,}",
    "strings of a request": f"{otlp_limits.MAX_MENDED:,}",
    "facts (selections, calls, feedback)": f"{mapping.MAX_FACTS:,}",
    "values of a JSON text": f"{conversation._MAX_MARKS:,}",
    "native events in a request": f"{events_in.MAX_ITEMS:,}",
    "a native event": f"{MAX_EVENT_BYTES // 1024} KiB",
}


def table(heading: str) -> list[list[str]]:
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_every_limit_is_told() -> None:
    told = dict(table("Limits"))
    assert len(told) == len(LIMITS)
    for name, value in LIMITS.items():
        (row,) = [of for of in told if of.startswith(name)]
        assert told[row] == value


@pytest.mark.parametrize("status", sorted(status for status in problems.REFUSALS if status != 422))
def test_every_refusal_is_told(status: int) -> None:
    told = {int(number) for row in table("Answers") for number in re.findall(r"\b[1-5]\d\d\b", row[0])}
    assert status in told
