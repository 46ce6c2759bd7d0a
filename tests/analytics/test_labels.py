"""Labels as they are kept: replaced by query, masked, and remembered with what evaluations found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from analytics import labels, labels_imported
from analytics.labels import Evaluation, Label, LabelStore, Result, Written, query_key, redacted
from collector.control import Control
from pickwise.settings import Settings
from tests.analytics.conftest import House


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    control = Control(tmp_path)
    yield control
    control.close()


@pytest.fixture
def store(control: Control) -> LabelStore:
    return LabelStore(control)


def label(query: str, *expected: str, language: str | None = None) -> Label:
    return Label(query=query, expected=expected, language=language)


def test_the_same_again_changes_nothing_and_a_query_again_replaces(store: LabelStore, tmp_path: Path) -> None:
    assert labels_imported.revision(tmp_path) is None
    assert store.put("p", [label("a", "x"), label("b", "x", "y")]) == Written(2, 0, 0)
    first = labels_imported.revision(tmp_path)
    assert store.put("p", [label("a", "x"), label("b", "x", "y")]) == Written(0, 0, 2)
    assert labels_imported.revision(tmp_path) == first
    assert store.put("p", [label(" a\n", "z", language="de"), label("c", "x")]) == Written(1, 1, 0)
    assert labels_imported.revision(tmp_path) not in (None, first)
    assert store.put("other", [label("a", "x")]) == Written(1, 0, 0)
    found = labels_imported.imported(tmp_path).sort("project", "query").drop("labelled_at")
    assert found.rows() == [
        ("other", "a", ["x"], None, None),
        ("p", " a\n", ["z"], "de", None),
        ("p", "b", ["x", "y"], None, None),
        ("p", "c", ["x"], None, None),
    ]


def test_the_last_label_of_a_query_in_one_import_holds(store: LabelStore, tmp_path: Path) -> None:
    assert store.put("p", [label("a", "x"), label("a", "y")]) == Written(1, 0, 0)
    assert labels_imported.imported(tmp_path)["expected"].to_list() == [["y"]]


def test_many_labels_are_one_import(store: LabelStore, tmp_path: Path) -> None:
    many = [label(f"query {i}", "x") for i in range(2_000)]
    assert store.put("p", many) == Written(2_000, 0, 0)
    assert store.put("p", [label(f"query {i}", "y") for i in range(2_000)]) == Written(0, 2_000, 0)
    assert labels_imported.imported(tmp_path).height == 2_000


def test_queries_are_kept_as_those_of_selections(control: Control) -> None:
    settings = Settings()
    (masked,) = redacted([label("write to ada@example.com", "mail")], settings, control)
    assert masked.query == "write to [email]"
    (hashed,) = redacted([label("write to Ada", "mail")], Settings(store_queries="hash"), control)
    assert hashed.query.startswith("hash:")
    assert "Ada" not in hashed.query
    assert hashed.expected == ("mail",)


def test_labels_are_a_table_also_those_told_by_feedback(house: House, tmp_path: Path) -> None:
    control = Control(tmp_path)
    LabelStore(control).put("default", [Label(query=" q ", expected=("x",), language="zh", cluster="travel")])
    control.close()
    house.events(
        {"type": "selection", "event_id": "s", "query": "r", "language": "de"},
        {
            "type": "feedback",
            "event_id": "1",
            "kind": "label",
            "selection_id": "s",
            "expected": ["y"],
            "source": "human",
        },
        {"type": "feedback", "event_id": "2", "kind": "label", "selection_id": "s", "expected": []},
        {"type": "feedback", "event_id": "3", "kind": "rejected", "selection_id": "s"},
    )
    found = house.rows("select query, selection_id, expected, language, cluster, source from labels order by query")
    assert [tuple(row.values()) for row in found] == [
        ("q", None, ["x"], "zh", "travel", "import"),
        ("r", "s", ["y"], "de", None, "human"),
    ]


def test_a_folder_without_control_state_or_without_labels_has_none(tmp_path: Path) -> None:
    assert labels_imported.imported(tmp_path).is_empty()
    assert not (tmp_path / "control.sqlite").exists()
    Control(tmp_path).close()
    assert labels_imported.imported(tmp_path).is_empty()


def test_a_control_state_that_cannot_be_read_costs_no_metric(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "control.sqlite").mkdir()
    assert labels_imported.revision(tmp_path) is None
    assert "could not be read" in caplog.text


def test_a_damaged_control_state_is_named(tmp_path: Path) -> None:
    path = tmp_path / "control.sqlite"
    for content in (b"no database" * 900, b"SQLite format 3\0" + b"\xaa" * 9000):
        path.write_bytes(content)
        with pytest.raises(
            labels_imported.LabelsUnreadable, match=r"control\.sqlite is damaged .*: restore it from a backup"
        ):
            labels_imported.imported(tmp_path)


def evaluation(at: float, **results: Result) -> Evaluation:
    return Evaluation(evaluated_at=at, what={"weights_version": "w"}, metrics=[{"metric": "mrr"}], results=results)


def test_evaluations_are_remembered_by_source(store: LabelStore) -> None:
    found = Result(expected=("a", "b"), ranks=(2,), ndcg_at_10=0.5)
    assert store.last("p", "discovery") is None
    store.keep("p", "discovery", evaluation(1.0, k=found))
    store.keep("p", "discovery", evaluation(2.0, k=found, l=found))
    store.keep("p", "logged", evaluation(3.0, k=found))
    assert store.last("p", "discovery") == evaluation(2.0, k=found, l=found)
    assert store.last("p", "logged") == evaluation(3.0, k=found)
    assert store.last("q", "logged") is None


def test_the_oldest_evaluations_are_forgotten(
    store: LabelStore, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels, "KEPT_EVALUATIONS", 3)
    found = Result(expected=("a",), ranks=(), ndcg_at_10=0.0)
    store.keep("q", "discovery", evaluation(0.0, k=found))
    for at in range(5):
        store.keep("p", "discovery", evaluation(float(at), k=found))
    with control.begin() as connection:
        kept = connection.execute(sa.select(labels.EVALUATIONS.c.project, labels.EVALUATIONS.c.evaluated_at)).all()
        results = connection.scalar(sa.select(sa.func.count()).select_from(labels.RESULTS))
    assert [tuple(row) for row in kept] == [("q", 0.0), ("p", 2.0), ("p", 3.0), ("p", 4.0)]
    assert results == 4


def test_the_key_of_a_query_knows_no_space_around_it() -> None:
    assert query_key("a b") == query_key("\ta b\r\n") != query_key("a  b")
