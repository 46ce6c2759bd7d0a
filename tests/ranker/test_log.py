"""What the ranker reads: labels, imported ones and those of feedback; and no facts that lie ahead."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from analytics.labels import Label, LabelStore
from collector.control import Control
from pickwise.settings import Settings
from ranker.explain import explain
from ranker.log import entries, read_log
from ranker.vectors import HashedWords, VectorCache
from ranker.weights import refresh
from tests.analytics.conftest import House, at, entry
from tests.analytics.test_metrics import selection


def test_the_golden_set_is_what_labels_say(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.write(entry("mail/send", name="send"), entry("book"))
    house.events(
        selection("imported", "book send", query="write to Ada"),
        selection("told", "book mail/send", query="write to Ada"),
        selection("judged", "book send"),
        selection("not listed", "book", query="write to Ada"),
        selection("unlabelled", "book", query="what else"),
        {"type": "feedback", "event_id": "1", "time": at(9), "kind": "label", "selection_id": "told"}
        | {"expected": ["book", "send"]},
        {"type": "feedback", "event_id": "2", "time": at(9), "kind": "label", "selection_id": "judged"}
        | {"expected": ["book"], "source": "judge"},
    )
    with closing(Control(house.folder)) as control:
        LabelStore(control).put("default", [Label(query="write to Ada", expected=("mail/send",))])
    labels = read_log(house.folder, Settings(data_dir=house.folder), "default").labels
    # The selection's own label beats that of its query; names are those of the list; judges don't count.
    assert labels.sort("event_id").rows() == [("imported", ["send"]), ("told", ["book", "mail/send"])]


def test_a_skill_is_found_by_how_it_is_asked_for(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.write(
        entry("parcel_track", description="Returns consignment events."),
        entry("parcel_book", trigger_phrases=["send this box"], examples=[{"query": "ship my shoes to Oslo"}]),
    )
    vectors = VectorCache(tmp_path, HashedWords())
    found = {
        known.skill_id: known.vector
        for known in entries(read_log(house.folder, Settings(data_dir=house.folder), "default"), vectors)
    }
    for query in ("send this box", "ship my shoes"):
        assert found["parcel_book"] @ vectors.one(query) > 0.3 > found["parcel_track"] @ vectors.one(query)


@pytest.mark.parametrize("latency_ms", [1e308, 1e18, 40 * 365 * 86_400e3])
def test_a_duration_that_is_none_makes_nothing_else_look_old(tmp_path: Path, latency_ms: float) -> None:
    house = House(tmp_path)
    call = {"type": "call", "time": at(9), "skill_id": "book", "ok": True, "latency_ms": 20.0}
    house.write(entry("book"))
    house.events(call | {"event_id": "good"}, call | {"event_id": "bad", "ok": False, "latency_ms": latency_ms})
    settings = Settings(data_dir=house.folder)
    log = read_log(house.folder, settings, "default")
    assert log.calls["latency_ms"].to_list() == [20.0]
    document = refresh(house.folder, settings, "default")
    (row,) = explain(house.folder, settings, "default", msgspec.to_builtins(document))
    assert (row["ok"], row["calls"]) == (1, 1)
