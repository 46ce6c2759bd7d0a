"""Native events as hypothesis makes them: fields of the right name, their values right or not."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from pickwise.events import EVENT_TYPES
from tests.fuzz.otlp import TEXTS

_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | TEXTS
    | st.sampled_from(["2026-01-31T12:00:00Z", "1969-12-31T23:59:59+14:00", "a" * 32, "b" * 16, 1_770_000_000 * 10**9]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["skill_id", "score", "k"]), inner),
    max_leaves=5,
)
_GOOD: dict[str, st.SearchStrategy[Any]] = {
    "event_id": st.sampled_from(["e1", "e2", "é" * 128]),
    "time": st.sampled_from([0, 1, 1_770_000_000 * 10**9, "2026-01-31T12:00:00.123456789Z", None]),
    "trace_id": st.sampled_from(["a" * 32, "B" * 32]),
    "span_id": st.sampled_from(["a" * 16, "B" * 16]),
    "skill_id": TEXTS,
    "kind": st.sampled_from(["accepted", "label", "rating"]),
    "candidates": st.lists(st.fixed_dictionaries({"skill_id": TEXTS}, optional={"score": st.floats()}), max_size=4),
    "picks": st.lists(TEXTS, max_size=3),
    "ok": st.booleans(),
    "latency_ms": st.floats(),
    "arguments": _VALUES,
    "attempt": st.integers(0, 2**63 - 1),
    "instance": TEXTS,
    "state": st.sampled_from(["degraded", "recovered", "probe"]),
}


@st.composite
def _event(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from([*EVENT_TYPES, "skill", "nonsense"]))
    fields = EVENT_TYPES[name].__struct_fields__ if name in EVENT_TYPES else ("skill_id",)
    chosen = draw(st.lists(st.sampled_from(fields), max_size=8, unique=True))
    needed = [field for field in ("skill_id", "kind", "instance", "state") if field in fields]
    event = {field: draw(_GOOD.get(field, _VALUES)) for field in {*chosen, *needed}}
    if not draw(st.integers(0, 3)):
        event[draw(st.sampled_from([*fields, "colour", "project"]))] = draw(_VALUES)
    return event | {"type": name}


ITEMS = st.lists(_event() | _VALUES, max_size=5)
ARRAYS = ITEMS.map(lambda items: json.dumps(items).encode())
LINES = ITEMS.map(lambda items: "\n".join(json.dumps(item) for item in items).encode())
