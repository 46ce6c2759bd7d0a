"""Sends a registry and events through the collector as it runs in the service: log, flusher, tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from collector.events_in import parse_events
from collector.service import Collector
from pickwise.settings import Settings

_BATCH = 2_000


def ingest(
    settings: Settings, skills: Sequence[dict[str, Any]], events: Sequence[dict[str, Any]], project: str = "default"
) -> None:
    """Returns when everything is in the tables. Raises RuntimeError when something was refused."""
    collector = Collector(settings)
    collector.start()
    try:
        registry = _ndjson([{"type": "skill", **skill} for skill in skills])
        _, refused = collector.submit_skills(parse_events(registry, "ndjson"), project)
        for start in range(0, len(events), _BATCH):
            parsed, done = collector.submit_events(_ndjson(events[start : start + _BATCH]), "ndjson", project)
            refused = [*refused, *parsed.rejected]
            if done is not None:
                done.result(60)
        if refused:
            raise RuntimeError(f"{len(refused)} items were refused, first: {refused[0]}")
        if not collector.refresh(120):
            raise RuntimeError("the events were not visible after 120 s")
    finally:
        collector.stop()


def _ndjson(items: Sequence[dict[str, Any]]) -> bytes:
    return b"\n".join(json.dumps(item).encode() for item in items)
