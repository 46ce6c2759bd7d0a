"""283 real searches over 527 MCP tools: every figure was counted from the file by an independent script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import Service, pickwise, pickwise_json


@pytest.fixture(scope="module")
def data_dir(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("livemcpbench")
    pickwise("import", shared / "data/registry/livemcpbench.jsonl", "--format", "skills", "--data-dir", folder)
    pickwise("import", shared / "data/events/livemcpbench.jsonl", "--format", "events", "--data-dir", folder)
    return folder


def ratio(data_dir: Path, name: str) -> tuple[float, int]:
    (row,) = pickwise_json("metrics", name, "--data-dir", data_dir)["rows"]
    return round(row["value"] * row["n"], 6), row["n"]


EXPECTED = {
    "acceptance_rate": (186, 282),
    "zero_pick_rate": (97, 283),
    "top1_acceptance_rate": (127, 186),
    "skip_rate": (59, 186),
    "off_list_rate": (6, 186),
    "mismatch_rate": (61, 186),
    "failed_tool_rate": (118, 531),
    "hallucinated_tool_rate": (3, 531),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_counts(data_dir: Path, name: str) -> None:
    assert ratio(data_dir, name) == EXPECTED[name]


def test_failures_by_kind(data_dir: Path) -> None:
    rows = pickwise_json("metrics", "failed_tool_rate", "--by", "error_kind", "--data-dir", data_dir)["rows"]
    counted = {row["error_kind"]: round(row["value"] * row["n"], 6) for row in rows}
    assert counted == {"tool_error": 104, "timeout": 14}
    assert {row["n"] for row in rows} == {531}


def test_ratings_are_kept(data_dir: Path) -> None:
    rows = pickwise_json("sql", "select count(*) n, sum(value) good from feedback", "--data-dir", data_dir)
    assert rows == [{"n": 95, "good": 67.0}]


def everything(data_dir: Path) -> list[Any]:
    queries = (
        "select * exclude (received_at, source_request) from selections order by event_id",
        "select * exclude (received_at, source_request) from candidates order by event_id, rank",
        "select * exclude (received_at, source_request) from calls order by call_key",
        "select * from skills order by skill_id, source, valid_from",
    )
    return [pickwise_json("sql", _existing(query, data_dir), "--data-dir", data_dir) for query in queries]


def _existing(query: str, data_dir: Path) -> str:
    """The query without excluding columns that its table lacks."""
    table = query.split(" from ")[1].split()[0]
    described = pickwise_json("sql", f"select column_name from (describe {table})", "--data-dir", data_dir)
    columns = {row["column_name"] for row in described}
    excluded = [name for name in ("received_at", "source_request") if name in columns]
    star = f"* exclude ({', '.join(excluded)})" if excluded else "*"
    return f"select {star} from " + query.split(" from ", 1)[1]


def test_importing_twice_changes_nothing(data_dir: Path, shared: Path) -> None:
    before = everything(data_dir)
    pickwise("import", shared / "data/registry/livemcpbench.jsonl", "--format", "skills", "--data-dir", data_dir)
    pickwise("import", shared / "data/events/livemcpbench.jsonl", "--format", "events", "--data-dir", data_dir)
    assert everything(data_dir) == before


def test_import_through_a_running_service(service: Service, shared: Path) -> None:
    folder = service.data_dir
    pickwise("import", shared / "data/registry/livemcpbench.jsonl", "--format", "skills", "--data-dir", folder)
    pickwise("import", shared / "data/events/livemcpbench.jsonl", "--format", "events", "--data-dir", folder)
    row = service.metric("hallucinated_tool_rate")
    assert (round(row["value"] * row["n"], 6), row["n"]) == (3, 531)
