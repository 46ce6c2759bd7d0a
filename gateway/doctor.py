"""``pickwise doctor``: what is wrong with this installation or data folder, and the mend."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from collector.lake import Lake
from collector.lock import holder
from collector.tables import TABLES
from pickwise.embed import WORDS, EmbedderUnavailable, load_embedder
from pickwise.settings import Settings, SettingsError, load_settings

#: Less free space than this is worth a word, bytes.
LOW_DISK = 2 * 2**30
#: A log backlog beyond this means that the flusher does not keep up, bytes.
LARGE_BACKLOG = 256 * 2**20


class Check(msgspec.Struct):
    """One finding: ``ok``, ``note`` (works, but know it) or ``bad``, with the mend."""

    name: str
    state: str
    finding: str
    mend: str = ""


def examine(data_dir: Path | None) -> dict[str, Any]:
    """All checks and the settings in force with where each comes from."""
    flags = {} if data_dir is None else {"data_dir": data_dir}
    try:
        settings = load_settings(**flags)
    except SettingsError as error:
        wrong = Check("settings", "bad", str(error), "correct that setting")
        return {"checks": [msgspec.to_builtins(wrong)], "settings": []}
    checks = [*_installation(settings), *_folder(settings.data_dir)]
    return {"checks": [msgspec.to_builtins(check) for check in checks], "settings": list(_sources(settings, flags))}


def _installation(settings: Settings) -> Iterator[Check]:
    yield _embedder(settings)
    if find_spec("sentence_transformers"):
        yield Check("torch extra", "ok", "sentence-transformers is installed")
    else:
        yield Check(
            "torch extra",
            "note",
            "sentence-transformers is not installed; `minilm` and other such embedders are not available",
            "pip install torch==2.13.0 && pip install 'pickwise[torch]'",
        )


def _embedder(settings: Settings) -> Check:
    if settings.embedder == WORDS:
        return Check("embedder", "ok", "none by choice: similarity goes by words")
    try:
        return Check("embedder", "ok", f"{settings.embedder} is {load_embedder(settings.embedder).version}")
    except EmbedderUnavailable as error:
        return Check("embedder", "bad", str(error), "install it, or set PICKWISE_EMBEDDER=use")


def _folder(data_dir: Path) -> Iterator[Check]:
    if not data_dir.exists():
        yield Check(
            "data folder", "note", f"{data_dir} does not exist yet", "start `pickwise serve` or import something"
        )
        return
    if not data_dir.is_dir():
        yield Check("data folder", "bad", f"{data_dir} is not a folder", "give another --data-dir")
        return
    if not os.access(data_dir, os.W_OK):
        yield Check("data folder", "bad", f"{data_dir} is not writable", f"chown {os.getuid()} {data_dir}")
        return
    yield Check("data folder", "ok", str(data_dir.resolve()))
    held = holder(data_dir)
    if held:
        yield Check("service", "ok", f"process {held.pid} on {held.host} holds the folder, HTTP port {held.http_port}")
    else:
        yield Check("service", "note", "no service is running on this folder")
    yield _disk(data_dir)
    yield _backlog(data_dir)
    yield _dead_letters(data_dir)
    yield from _tables(data_dir)


def _disk(data_dir: Path) -> Check:
    free = shutil.disk_usage(data_dir).free
    finding = f"{free / 2**30:.1f} GiB free"
    return Check("disk", "ok", finding) if free > LOW_DISK else Check("disk", "bad", finding, "free some space")


def _backlog(data_dir: Path) -> Check:
    size = sum(segment.stat().st_size for segment in (data_dir / "wal").glob("*"))
    if size <= LARGE_BACKLOG:
        return Check("log", "ok", f"{size / 2**20:.1f} MiB in the log")
    return Check(
        "log", "bad", f"{size / 2**20:.0f} MiB are not committed yet", "is a collector running? see logs/collect.log"
    )


def _dead_letters(data_dir: Path) -> Check:
    count = sum(1 for _ in (data_dir / "rejected").glob("*"))
    if not count:
        return Check("rejected", "ok", "no request failed to decode")
    return Check(
        "rejected", "bad", f"{count} requests failed to decode", f"read {data_dir / 'rejected'} and report them"
    )


def _tables(data_dir: Path) -> Iterator[Check]:
    lake = Lake(data_dir)
    for table in TABLES:
        missing = [file for file in lake.files(table) if not Path(file).exists()]
        if missing:
            yield Check(
                f"table {table}",
                "bad",
                f"{len(missing)} files are gone, e.g. {missing[0]}",
                "restore them from a backup",
            )
    present = [table for table in TABLES if lake.version(table) >= 0]
    yield Check("tables", "ok", f"{len(present)} of {len(TABLES)} exist: {', '.join(present) or 'none yet'}")


def _sources(settings: Settings, flags: dict[str, Any]) -> Iterator[dict[str, Any]]:
    environment = {name.upper() for name in os.environ}
    in_file = _toml()
    for name in type(settings).model_fields:
        variable = f"PICKWISE_{name.upper()}"
        source = (
            "flag"
            if name in flags
            else variable
            if variable in environment
            else "pickwise.toml"
            if name in in_file
            else "default"
        )
        value = getattr(settings, name)
        yield {"name": name, "value": "***" if "secret" in name and value else value, "source": source}


def _toml() -> dict[str, Any]:
    file = Path("pickwise.toml")
    return msgspec.toml.decode(file.read_bytes()) if file.exists() else {}
