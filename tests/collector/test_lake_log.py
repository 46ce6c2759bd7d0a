"""Damage in the logs of tables: found where it can cost rows, and told with the file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl
import pytest

from collector.lake import Lake
from collector.lake_log import damaged_entries
from collector.lake_version import LakeFormatError
from collector.tables import TABLES

ENTRIES = 4


def entry(lake: Lake, number: int) -> Path:
    return lake.root / "routes" / "_delta_log" / f"{number:020d}.json"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    found = Lake(tmp_path)
    for number in range(ENTRIES):
        row = {
            "project": "p",
            "date": date(2026, 1, 1),
            "event_id": str(number),
            "time": datetime(2026, 1, 1, tzinfo=UTC),
        }
        found.append("routes", pl.DataFrame([row], schema_overrides={name: TABLES["routes"][name] for name in row}))
    return found


def test_a_whole_log_and_none_have_no_damage(lake: Lake, tmp_path: Path) -> None:
    assert list(damaged_entries(entry(lake, 0).parent)) == []
    assert list(damaged_entries(tmp_path / "nowhere")) == []


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _: b"", "it is empty"),
    "blank": (lambda _: b"\n\n", "it is empty"),
    "cut": (lambda content: content[:80], "Input data was truncated"),
    "zeros": (lambda content: bytes(len(content)), "JSON is malformed"),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("number", [0, 1, ENTRIES - 1])
def test_every_damaged_entry_is_named(lake: Lake, damage: str, number: int) -> None:
    change, says = DAMAGE[damage]
    path = entry(lake, number)
    path.write_bytes(change(path.read_bytes()))
    (sentence,) = damaged_entries(path.parent)
    assert sentence.startswith(f"{path} is damaged: {says}")


@pytest.mark.parametrize("damage", ["cut", "zeros"])
def test_what_the_library_refuses_is_told_with_the_entry(lake: Lake, tmp_path: Path, damage: str) -> None:
    path = entry(lake, 1)
    path.write_bytes(DAMAGE[damage][0](path.read_bytes()))
    with pytest.raises(LakeFormatError, match=rf"the log of .*/routes can't be read \({path} is damaged: .* a backup"):
        Lake(tmp_path).read("routes")


def test_a_missing_entry_is_told(lake: Lake, tmp_path: Path) -> None:
    entry(lake, 1).unlink()
    with pytest.raises(LakeFormatError, match=r"the log of .*/routes can't be read .* restore .* from a backup"):
        Lake(tmp_path).versions()


def test_nobody_reads_what_lies_before_a_checkpoint(lake: Lake, tmp_path: Path) -> None:
    opened = lake._open("routes")
    assert opened is not None
    opened.create_checkpoint()
    for number in range(ENTRIES):
        entry(lake, number).write_bytes(b"")
    assert list(damaged_entries(entry(lake, 0).parent)) == []
    assert Lake(tmp_path).read("routes").height == ENTRIES


def test_a_reader_goes_on_where_the_log_was_made_anew(lake: Lake, tmp_path: Path) -> None:
    reader = Lake(tmp_path)
    assert reader.read("routes").height == ENTRIES
    lake.purge("routes")
    row = lake.read("routes").head(1).with_columns(event_id=pl.lit("another"))
    lake.append("routes", row)
    lake.purge("routes")
    assert reader.read("routes").height == ENTRIES + 1
