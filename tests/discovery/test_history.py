"""History as an arm of recall: it nudges with few successes, leads with many, and without any changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pytest

from discovery.fusion import min_max
from discovery.history import ARTEFACT_PATH, History, HistoryClient, UsageArm, decode_history, usable
from ranker.artefacts import Artefacts
from ranker.recall import Recall
from tests.discovery.service import Service

VECTORS = np.eye(4, dtype=np.float32)[:3]


def written(folder: Path, support: Sequence[float] = (1.0, 2.0, 30.0)) -> bytes:
    """An artefact as the service writes it."""
    recall = Recall("p", "w-1", "e-1", ["a", "b", "c"], ["d", "d", ""], np.array(support), VECTORS)
    artefacts = Artefacts(folder)
    return artefacts.read("p", artefacts.keep(recall), gzipped=False)


def test_what_the_service_writes_is_read(tmp_path: Path) -> None:
    history = decode_history(written(tmp_path))
    assert history.skill_ids == ["a", "b", "c"]
    assert (history.weights_version, history.embedding_version) == ("w-1", "e-1")
    np.testing.assert_array_equal(history.vectors, VECTORS)
    np.testing.assert_array_equal(history.support, [1, 2, 30])


def test_a_file_of_another_form_is_refused_by_name(tmp_path: Path) -> None:
    table = pa.ipc.open_file(written(tmp_path)).read_all()
    for changed, name in (
        (table.drop_columns(["support"]), "support"),
        (table.replace_schema_metadata({"weights_version": "w"}), "embedding_version"),
        (table.set_column(3, "vector", pa.array([[1.0], [2.0, 3.0], []])), "list of fixed length"),
    ):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, changed.schema) as file:
            file.write_table(changed)
        with pytest.raises(ValueError, match=name):
            decode_history(sink.getvalue().to_pybytes())
    with pytest.raises(ValueError, match=r"too small|Arrow"):
        decode_history(b"no Arrow")


def test_the_first_one_may_take_its_time_without_alarm(
    server: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    server.documents[ARTEFACT_PATH], server.get_delay_s = written(tmp_path / "service"), 0.5
    client = HistoryClient(httpx.Client(base_url=server.url, timeout=0.1))
    assert not client.refresh()
    assert not client.refresh()
    told = [(record.levelname, record.getMessage()) for record in caplog.records if record.name.startswith("discovery")]
    assert told == [("INFO", f"{ARTEFACT_PATH}: not ready yet; asked for again")]
    server.get_delay_s = 0.0
    assert client.refresh()
    caplog.clear()
    server.get_delay_s = 0.5
    assert not client.refresh()  # one that was there and is not told again is worth a warning
    assert [record.levelname for record in caplog.records if record.name.startswith("discovery")] == ["WARNING"]
    assert client.value is not None


def test_the_last_good_one_is_kept_also_on_disk(server: Service, tmp_path: Path) -> None:
    http, kept = httpx.Client(base_url=server.url), tmp_path / "history.arrow"
    client = HistoryClient(http, kept)
    assert not client.refresh()  # no skill has a history yet: no fault
    assert (client.value, client.error) == (None, None)
    server.documents[ARTEFACT_PATH] = written(tmp_path / "service")
    assert client.refresh()
    assert not client.refresh()
    assert server.log[-1] == (ARTEFACT_PATH, 304)
    server.documents[ARTEFACT_PATH] = b"broken"
    assert not client.refresh()
    assert client.value is not None
    assert client.error is not None
    again = HistoryClient(http, kept)
    assert again.value is not None
    assert again.value.weights_version == "w-1"


def history(support: Sequence[float]) -> History:
    return History(["a", "b", "c"], np.array(support), VECTORS, "w-1", "e-1")


def test_more_successes_weigh_more() -> None:
    skill_ids, scores = ["c", "b", "a", "never used"], np.array([0.1, 0.2, 0.3, 0.9])
    query = np.array([0.0, 0.0, 1.0, 0.0], dtype=np.float32)  # what `c` answered
    dense = np.array([0.1, 0.1, 0.1, 0.3])
    few, led_by_few = UsageArm(history([0.5, 0.5, 0.5]), skill_ids).blend(scores, dense, query)
    many, led_by_many = UsageArm(history([50, 50, 50]), skill_ids).blend(scores, dense, query)
    assert few.argmax() == 3  # nudges
    assert few[0] > min_max(scores)[0]
    assert many.argmax() == 0  # leads
    assert led_by_many.tolist() == [True, False, False, False]
    assert not led_by_few[1:].any()


def test_without_history_nothing_changes() -> None:
    scores = np.array([0.1, 0.2])
    blended, led = UsageArm(history([1, 1, 1]), ["x", "y"]).blend(scores, scores, np.ones(4, dtype=np.float32))
    assert blended is scores
    assert not led.any()


def test_another_embedders_history_is_left_out_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    assert usable(history([1, 1, 1]), "e-1")
    assert not usable(history([1, 1, 1]), "e-2")
    assert "e-2" in caplog.text
