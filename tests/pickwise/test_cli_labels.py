"""``pickwise labels``: imported, held against the discovery layer and against what was logged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from collector.lock import FolderLock
from pickwise.cli import app
from pickwise.cli.options import UserError

runner = CliRunner()

SKILLS = {
    "hotel/book": "Book a room in a hotel.",
    "flight/search": "Search flights between two cities.",
    "mail/send": "Send an e-mail to somebody.",
    "weather/now": "Tell the weather of a city.",
}
LABELS = [
    {"query": "book a hotel room", "expected": ["hotel/book"], "language": "en", "cluster": "travel"},
    {"query": "which flights are there", "expected": ["flight/search"], "language": "en"},
    {"query": "send an e-mail", "expected": ["send", "no/such"], "language": "en"},
]


@pytest.fixture(autouse=True)
def words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICKWISE_EMBEDDER", "words")


def run(folder: Path, *arguments: str, exits: int = 0) -> Any:
    done = runner.invoke(app, [*arguments, "--data-dir", str(folder)], env={"COLUMNS": "160"})
    assert done.exit_code == exits, done.output
    return json.loads(done.stdout) if "--json" in arguments else done.output


def write(path: Path, *rows: dict[str, Any] | str) -> str:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return str(path)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A data folder with a registry, two logged lists, and labels."""
    folder = tmp_path / "data"
    entries = [{"skill_id": s, "name": s.split("/")[1], "description": text} for s, text in SKILLS.items()]
    run(folder, "registry", "import", write(tmp_path / "skills.jsonl", *entries))
    listed = {"type": "selection", "query": "book a hotel room", "ranked": True, "time": "2026-03-02T12:00:00Z"}
    candidates = [{"skill_id": "mail/send"}, {"skill_id": "hotel/book"}]
    run(folder, "import", write(tmp_path / "events.jsonl", listed | {"candidates": candidates}), "--format", "events")
    run(folder, "labels", "import", write(tmp_path / "labels.jsonl", *LABELS))
    return folder


def test_import_says_what_it_took_and_what_the_registry_does_not_know(shop: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "more.jsonl", LABELS[0], {"query": "new", "expected": ["odd"], "who": "me"}, "{", "")
    found = run(shop, "labels", "import", file, "--json")
    assert {key: found[key] for key in ("accepted", "rejected", "added", "changed", "unchanged")} == {
        "accepted": 2,
        "rejected": 1,
        "added": 1,
        "changed": 0,
        "unchanged": 1,
    }
    assert (found["unknown_skills"], found["ignored_fields"]) == (["odd"], ["who"])
    assert found["problems"][0].startswith(f"{file}:3: expected a JSON object")
    text = run(shop, "labels", "import", file)
    assert "2 accepted (0 new, 0 changed), 1 refused" in text
    assert "more.jsonl:3: expected a JSON object" in text
    assert "1 expected skills are not in the registry of project default" in text


def test_a_file_without_any_good_line_fails(tmp_path: Path) -> None:
    run(tmp_path / "data", "labels", "import", write(tmp_path / "bad.csv", "question,skill", "q,a"), exits=1)


def test_evaluate_searches_with_the_discovery_layer(shop: Path) -> None:
    found = run(shop, "labels", "evaluate", "--json")
    assert (found["labels"], found["n"], found["source"], found["previous"]) == (3, 3, "discovery", None)
    assert found["unknown_skills"] == ["no/such"]
    values = {row["k"] or row["metric"]: row["value"] for row in found["metrics"]}
    # Four skills, so that all are within the first 5; one of the two that the third query expects does not exist.
    assert (values[5], values[10]) == (pytest.approx((1 + 1 + 0.5) / 3), pytest.approx((1 + 1 + 0.5) / 3))
    assert values["mrr"] == 1.0
    what = found["what"]
    assert what["embedding_version"] == "hashed-words/1"
    assert what["registry_version"]
    assert what["weights_version"]
    assert (what["model_version"], what["fallbacks"], what["hashed"]) == (None, 0, 0)
    assert {row["cluster"] for row in found["by_cluster"]} == {"travel"}
    assert {row["language"] for row in found["by_language"]} == {"en"}


def test_evaluate_tells_what_fell_since_last_time(shop: Path, tmp_path: Path) -> None:
    run(shop, "labels", "evaluate")
    worse = {"skill_id": "hotel/book", "name": "book", "description": "Reserve accommodation."}
    other = {"skill_id": "hotel/find", "name": "find", "description": "Book a hotel room: book a hotel room."}
    run(shop, "registry", "import", write(tmp_path / "worse.jsonl", worse, other))
    found = run(shop, "labels", "evaluate", "--json")
    assert (found["previous"]["n_shared"], found["previous"]["n_fell"]) == (3, 1)
    (fell,) = found["fell"]
    assert (fell["query"], fell["ranks_before"]) == ("book a hotel room", [1])
    assert fell["ndcg_at_10"] < fell["ndcg_at_10_before"] == 1.0
    assert found["what"]["registry_version"] != found["previous"]["what"]["registry_version"]
    run(shop, "registry", "import", write(tmp_path / "worst.jsonl", other | {"skill_id": "hotel/seek"}))
    assert "NDCG@10" in run(shop, "labels", "evaluate")


def test_evaluate_what_was_logged(shop: Path) -> None:
    found = run(shop, "labels", "evaluate", "--logged", "--json")
    assert (found["n"], found["source"]) == (1, "logged")
    assert {row["k"] or row["metric"]: row["value"] for row in found["metrics"]}["mrr"] == 0.5
    text = run(shop, "labels", "evaluate", "--logged")
    assert "1 of 3 labelled queries of project default, logged lists" in text
    assert "recall@10" in text


def test_the_metrics_are_against_the_same_labels(shop: Path) -> None:
    found = run(shop, "metrics", "recall_at_k", "--json")
    assert [(row["k"], row["value"], row["n"]) for row in found["rows"]] == [
        (1, 0, 1),
        (3, 1, 1),
        (5, 1, 1),
        (10, 1, 1),
    ]
    assert run(shop, "metrics", "mrr", "--json")["rows"][0]["value"] == 0.5


def test_evaluating_beside_a_service_and_leaving_its_log_alone(shop: Path) -> None:
    before = run(shop, "sql", "select count(*) as n from selections", "--json")
    lock = FolderLock(shop)
    lock.acquire()
    assert run(shop, "labels", "evaluate", "--json")["n"] == 3
    lock.release()
    assert run(shop, "sql", "select count(*) as n from selections", "--json") == before
    assert run(shop, "sql", "select count(*) as n from routes", "--json") == [{"n": 0}]


def test_without_labels_there_is_nothing_to_evaluate(tmp_path: Path) -> None:
    for options in ([], ["--logged"]):
        assert "No labels in project default" in run(tmp_path / "none", "labels", "evaluate", *options)
    assert run(tmp_path / "none", "labels", "evaluate", "--json")["labels"] == 0
    assert not (tmp_path / "none").exists()


def test_without_a_registry_nothing_can_be_searched(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    run(folder, "labels", "import", write(tmp_path / "labels.jsonl", LABELS[0]))
    done = runner.invoke(app, ["labels", "evaluate", "--data-dir", str(folder)])
    assert isinstance(done.exception, UserError)
    assert "no active skill to search" in str(done.exception)
    assert "No ranked selection" in run(folder, "labels", "evaluate", "--logged")


def test_hashed_queries_are_evaluated_as_logged(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICKWISE_STORE_QUERIES", "hash")
    listed = {"type": "selection", "query": "secret", "ranked": True, "candidates": [{"skill_id": "mail/send"}]}
    common = ("--project", "hashed")
    run(shop, "import", write(tmp_path / "e.jsonl", listed), "--format", "events", *common)
    run(shop, "labels", "import", write(tmp_path / "l.csv", "query,expected", "secret,mail/send"), *common)
    assert run(shop, "labels", "evaluate", "--logged", "--json", *common)["n"] == 1
    done = runner.invoke(app, ["labels", "evaluate", "--data-dir", str(shop), *common])
    assert "try --logged" in str(done.exception)


@pytest.mark.parametrize("command", ["import", "evaluate"])
def test_help_teaches(command: str) -> None:
    done = runner.invoke(app, ["labels", command, "--help"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert "--data-dir" in done.output
    assert "--project" in done.output
