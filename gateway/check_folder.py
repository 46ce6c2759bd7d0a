"""What the doctor learns from the files of a data folder, with or without a service."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import polars as pl
from deltalake.exceptions import DeltaError

from collector.archive import Archive
from collector.dead_letters import Letter
from collector.lake import Lake
from collector.lake_version import LakeFormatError, check_version
from collector.operations import DAMAGED
from collector.segment import SUFFIX, LogFormatError, scan
from collector.skill_changes import SKILLS
from gateway.check import Check
from gateway.check_service import LARGE_BACKLOG
from gateway.check_tables import tables_checks
from pickwise.settings import Settings

#: Less free space than this is worth a word, bytes.
LOW_DISK = 2 * 2**30
#: So many dead letters are read for their reasons.
_LETTERS = 200
#: Segments longer than this together are not read through.
_READ_BYTES = 512 * 2**20


def folder_checks(settings: Settings, *, is_held: bool) -> Iterator[Check]:
    """All findings about a folder that is there and readable; ``is_held``: a service is at work on it."""
    data_dir = settings.data_dir
    yield _disk(data_dir)
    yield from _log(data_dir, is_held)
    yield _dead_letters(data_dir)
    yield _archive(settings)
    yield _retention(settings)
    yield from _operations(data_dir, is_held)
    try:
        check_version(data_dir / "lake")
    except LakeFormatError as error:
        yield Check("tables", "bad", str(error), "use a version of Pickwise that knows them")
        return
    yield from tables_checks(data_dir)
    yield from _registries(data_dir)


def _disk(data_dir: Path) -> Check:
    free = shutil.disk_usage(data_dir).free
    finding = f"{free / 2**30:.1f} GiB free"
    mend = "free some space; `pickwise retention` and the settings retention_days and archive_days bound what is kept"
    return Check("disk", "ok", finding) if free > LOW_DISK else Check("disk", "bad", finding, mend)


def _log(data_dir: Path, is_held: bool) -> Iterator[Check]:
    damaged = sorted((data_dir / "wal").glob("*.damaged"))
    if damaged:
        mend = "check the disk; what was readable is committed. Keep the file for a report, it is deleted in time"
        yield Check("damaged log", "bad", f"{len(damaged)} damaged segments, e.g. {damaged[0]}", mend)
    segments = sorted((data_dir / "wal").glob(f"*{SUFFIX}"))
    size = sum(_size(segment) for segment in segments)
    if is_held:
        if size > LARGE_BACKLOG:
            yield Check("log", "bad", f"{size / 2**20:.0f} MiB are not committed yet", "see `backlog` and `commits`")
        else:
            yield Check("log", "ok", f"{size / 2**20:.1f} MiB in the log")
        return
    yield _left_log(segments, size)


def _left_log(segments: list[Path], size: int) -> Check:
    """What a service that is gone left to be committed."""
    mend = "start `pickwise serve`: it commits them first"
    if size > _READ_BYTES:
        return Check("log", "note", f"{size / 2**20:.0f} MiB of acknowledged requests wait in the log", mend)
    records = 0
    for segment in segments:
        try:
            found = scan(segment)
        except (LogFormatError, OSError) as error:
            return Check("log", "bad", str(error), "the service does not start with it; move it or use that version")
        records += found.records
        if found.damage and segment != segments[-1]:
            finding = f"{segment} is damaged: {found.damage}"
            return Check(
                "log", "bad", finding, "check the disk; `pickwise serve` commits what is readable, keeps the file"
            )
    if not records:
        return Check("log", "ok", "nothing waits in the log")
    return Check("log", "note", f"{records} acknowledged requests wait in the log", mend)


def _dead_letters(data_dir: Path) -> Check:
    folder = data_dir / "rejected"
    files = sorted(folder.glob("*.json"))
    if not files:
        return Check("rejected", "ok", "no request failed to decode")
    # The class of the error alone: its text may quote what a user wrote.
    reasons = Counter(_reason(file) for file in files[-_LETTERS:]).most_common(3)
    finding = (
        f"{len(files)} requests failed to decode, or parts of them: {', '.join(f'{n} × {why}' for why, n in reasons)}"
    )
    mend = f"`pickwise replay` tries them again, after an upgrade; read {folder} and report them"
    return Check("rejected", "bad", finding, mend)


def _reason(file: Path) -> str:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Letter).reason.partition(":")[0]
    except (OSError, msgspec.MsgspecError):
        return "unreadable"


def _archive(settings: Settings) -> Check:
    if settings.archive_days == 0:
        return Check("archive", "note", "off: `pickwise replay` has nothing to map anew", "set archive_days above 0")
    files = Archive(settings.data_dir / "archive", settings.archive_days).files()
    size = sum(_size(file.path) for file in files)
    since = f", since {min(file.hour for file in files):%Y-%m-%d %H:00} UTC" if files else ""
    return Check("archive", "ok", f"{settings.archive_days:g} days kept; {size / 2**20:.1f} MiB{since}")


def _retention(settings: Settings) -> Check:
    ages = [f"{table} {days:g} days" for table, days in settings.retention.items()]
    if settings.retention_days is not None:
        ages.append(f"{'others' if ages else 'all'} {settings.retention_days:g} days")
    return Check("retention", "ok", f"events are kept: {', '.join(ages) or 'for ever'}")


def _operations(data_dir: Path, is_held: bool) -> Iterator[Check]:
    damaged = sorted((data_dir / "operations").glob(f"*{DAMAGED}"))
    if damaged:
        finding = f"{len(damaged)} requests to forget or replay were damaged before they were done, e.g. {damaged[0]}"
        yield Check("damaged operations", "bad", finding, "ask again for what was asked, then delete the file")
    waiting = len(list((data_dir / "operations").glob("*.json")))
    if waiting and not is_held:
        finding = f"{waiting} of forget and replay were asked for and are not done"
        yield Check("operations", "note", finding, "start `pickwise serve`: it goes on with them")


def _registries(data_dir: Path) -> Iterator[Check]:
    """Projects with events whose skills nobody has declared."""
    active = {path.name.partition("=")[2] for path in (data_dir / "lake" / "calls").glob("project=*")}
    if not active:
        return
    try:
        declared = Lake(data_dir).select(SKILLS, pl.col("source") == "declared", ["project"])["project"].unique()
    except (OSError, DeltaError, pl.exceptions.PolarsError):  # unreadable: said above
        return
    without = sorted(active - set(declared))
    if not without:
        yield Check("registries", "ok", f"{len(active)} projects have declared their skills")
        return
    shown = ", ".join(without[:5]) + (" …" if len(without) > 5 else "")
    mend = f"import a registry for a full verdict: pickwise import FILE --format skills --project {without[0]}"
    finding = f"no registry is declared for {shown}: names are judged against the skills that were seen offered"
    yield Check("registries", "note", finding, mend)


def _size(path: Path) -> int:
    """Bytes; 0 for a file that has just gone."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
