"""What is judged on the event loop, and what in its own time."""

from __future__ import annotations

import json

import pytest

from bench.traces import requests
from collector.problems import JSON, NDJSON, PROTOBUF
from collector.reception import is_light
from collector.weight import LIGHT_BYTES

#: What an exporter of default settings sends at most.
SPANS = requests(1, 73)[0]
#: Fields 1 and 2 with nothing in them: two bytes a record.
EMPTY = b"\x0a\xff\x7f" + b"\x12\x00" * 20_000


@pytest.mark.parametrize(
    ("body", "media", "light"),
    [
        (b"", PROTOBUF, True),
        (SPANS, PROTOBUF, True),
        (SPANS * 2, PROTOBUF, False),
        (EMPTY, PROTOBUF, False),
        (EMPTY[:16_000], PROTOBUF, True),
        (b"\0" * LIGHT_BYTES, PROTOBUF, True),
        (b"\0" * (LIGHT_BYTES + 1), PROTOBUF, False),
        (json.dumps([{"type": "call", "skill_id": "weather", "ok": True}] * 4_000).encode(), JSON, True),
        (b"[" + b"{}," * 20_000 + b"{}]", JSON, False),
        (b"{}\n" * 20_000, NDJSON, False),
        (b'"' + b"x" * 300_000 + b'"', JSON, False),
    ],
)  # fmt: skip
def test_what_is_judged_in_a_moment(body: bytes, media: str, light: bool) -> None:
    assert is_light(body, media) is light
