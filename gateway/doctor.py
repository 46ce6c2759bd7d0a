"""``pickwise doctor``: what is wrong with this installation or data folder, and the mend."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from collector.lock import holder
from gateway.check import Check
from gateway.check_folder import folder_checks
from gateway.check_jobs import jobs_checks, rules_check
from gateway.check_service import service_checks
from gateway.check_state import control_check, served_checks
from pickwise.embed import WORDS, EmbedderUnavailable, load_embedder
from pickwise.settings import Settings, SettingsError, load_settings, unknown_variables


def examine(data_dir: Path | None) -> dict[str, Any]:
    """All checks and the settings in force with where each comes from."""
    flags = {} if data_dir is None else {"data_dir": data_dir}
    try:
        settings = load_settings(**flags)
    except SettingsError as error:
        wrong = Check("settings", "bad", str(error), "correct that setting")
        return {"checks": [msgspec.to_builtins(wrong)], "settings": []}
    checks = [*_variables(), *_installation(settings), *_folder(settings)]
    return {"checks": [msgspec.to_builtins(check) for check in checks], "settings": list(_sources(settings, flags))}


def _variables() -> Iterator[Check]:
    for finding in unknown_variables():
        yield Check("settings", "note", finding, "correct its name, or unset it; docs/settings.md lists them")


def _installation(settings: Settings) -> Iterator[Check]:
    yield _embedder(settings)
    yield rules_check(settings)
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


def _folder(settings: Settings) -> Iterator[Check]:
    data_dir = settings.data_dir
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
    held, control = holder(data_dir), control_check(data_dir)
    if control is not None:
        yield control
    is_usable = control is None or control.state == "ok"
    if held is None:
        yield Check("service", "note", "no service is running on this folder", "start `pickwise serve`")
    elif is_usable:
        yield from service_checks(settings, held)
    yield from folder_checks(settings, is_held=held is not None)
    if is_usable:
        yield from served_checks(settings)
        yield from jobs_checks(settings)


def _in_use(settings: Settings) -> Iterator[dict[str, Any]]:
    """Where the service that holds the folder listens, in the form of ``_sources``: its flags are not known here."""
    held = holder(settings.data_dir) if settings.data_dir.is_dir() else None
    told = {"host": held.address, "http_port": held.http_port, "grpc_port": held.grpc_port} if held else {}
    for name, value in told.items():
        if held is not None and value is not None and value != getattr(settings, name):
            yield {"name": name, "value": value, "source": f"service, process {held.pid}"}


def _sources(settings: Settings, flags: dict[str, Any]) -> Iterator[dict[str, Any]]:
    in_use = {row["name"]: row for row in _in_use(settings)}
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
        is_secret = "secret" in name or name == "api_key"
        yield in_use.get(name) or {"name": name, "value": "***" if is_secret and value else value, "source": source}


def _toml() -> dict[str, Any]:
    file = Path("pickwise.toml")
    return msgspec.toml.decode(file.read_bytes()) if file.exists() else {}
