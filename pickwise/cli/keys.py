"""API keys: create, list, revoke."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table

from pickwise.cli.options import (
    DEFAULT,
    AsJson,
    DataDir,
    UserError,
    console,
    existing,
    print_json,
    remarks,
    settings_from,
    writable,
)
from pickwise.events import EventError, parse_instant
from pickwise.settings import Settings

if TYPE_CHECKING:
    from collector.keys import ApiKey, KeyStore

keys_app = typer.Typer(
    no_args_is_help=True,
    help="Who may send and read: API keys by project and role.\n\n"
    "A service without keys answers everyone on this machine. With the first key every request needs one, as "
    "`Authorization: Bearer KEY`. A running service knows of a new or revoked key within seconds.",
)

_UNITS_S = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(\d{1,6})([mhdw])")
_SIZES = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"(\d{1,19})\s*([KMGT]iB)?")


def register(app: typer.Typer) -> None:
    app.add_typer(keys_app, name="keys")


@keys_app.command("create")
def create(
    data_dir: DataDir = None,
    project: Annotated[str, typer.Option("--project", help="the one project that the key opens")] = DEFAULT,
    role: Annotated[
        list[str] | None,
        typer.Option(
            "--role",
            help="`ingest` sends events, `read` asks for metrics and weights, `admin` does both and what changes or "
            "deletes what is kept; repeatable (default: ingest)",
        ),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="what it is for, to know it again in the list")] = "",
    expires: Annotated[
        str | None, typer.Option("--expires", help="when it ends: 12h, 90d, or an RFC 3339 time (default: never)")
    ] = None,
    events_per_second: Annotated[
        float | None,
        typer.Option(
            "--events-per-second", help="quota, on average; ten seconds' worth may come at once (default: none)"
        ),
    ] = None,
    bytes_per_day: Annotated[
        str | None,
        typer.Option("--bytes-per-day", help="quota a UTC day, after decompression, e.g. 500MiB (default: none)"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it, once: only its hash is kept.

    An agent sends with it when its SDK is given `OTEL_EXPORTER_OTLP_HEADERS="Authorization=Bearer%20KEY"`; commands
    that talk to a running service read it from `PICKWISE_API_KEY`.

    Example: `pickwise keys create --project shop --role ingest --role read --name "shop agents" --expires 90d`
    """
    from collector.keys import KeyProblem

    settings = settings_from(data_dir=data_dir)
    with _store(settings) as store:
        is_first = not store.all()
        try:
            key, secret = store.create(
                project,
                role or ["ingest"],
                name=name,
                expires_at=_moment(expires),
                events_per_second=events_per_second,
                bytes_per_day=_size(bytes_per_day),
            )
        except KeyProblem as error:
            field, _, expected = str(error).partition(":")
            raise UserError(f"--{field.replace('_', '-')}:{expected}") from error
    if as_json:
        print_json({"key": secret, **_row(key)})
    else:
        console.print(secret, soft_wrap=True, markup=False)
        remarks.print(f"Shown this once. {key.id}: {', '.join(key.roles)} of project {key.project}.", markup=False)
        if key.may(("ingest",)):
            header = f"Authorization=Bearer%20{secret[:7]}…"
            remarks.print(f'For agents: export OTEL_EXPORTER_OTLP_HEADERS="{header}"', markup=False)
    if is_first and settings.require_keys is None:
        remarks.print("The first key: from now on every request to this folder's service needs one.", markup=False)
    _say_where(settings)


def _say_where(settings: Settings) -> None:
    """Name the folder that has the key, in case it is not the one that was meant."""
    from collector.lock import holder

    folder = settings.data_dir.resolve()
    if holder(folder) is not None:
        remarks.print(f"Kept in {folder}, for the service that runs there.", soft_wrap=True, markup=False)
        return
    need = "" if settings.require_keys is False else "; a service started there will need keys"
    remarks.print(f"note: no service runs on {folder}{need}", soft_wrap=True, markup=False)


@keys_app.command("list")
def list_(
    data_dir: DataDir = None,
    project: Annotated[str | None, typer.Option("--project", help="only this project (default: all)")] = None,
    as_json: AsJson = False,
) -> None:
    """The keys of this folder, with their state and when they were last used (to the minute)."""
    settings = existing(settings_from(data_dir=data_dir))
    rows: list[dict[str, Any]] = []
    if settings.data_dir.exists():
        with _store(settings) as store:
            rows = [_row(key) for key in store.all(project)]
    if as_json:
        print_json(rows)
        return
    shown = ("id", "project", "roles", "name", "state", "created_at", "last_used_at", "expires_at")
    table = Table(Column("id", no_wrap=True), *shown[1:], "quotas")  # an id that is cut can't be revoked
    for row in rows:
        table.add_row(*(_text(row[column]) for column in shown), _quotas(row))
    console.print(table, markup=False)


@keys_app.command("revoke")
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="the id of `pickwise keys list`")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """End a key for good, also in a running service. When the last one ends, the service stays closed."""
    from collector.keys import UnknownKey

    settings = existing(settings_from(data_dir=data_dir))
    if not settings.data_dir.exists():
        raise UserError(f"no key has the id {key_id!r:.40}")
    with _store(settings) as store:
        try:
            # Who pastes a whole key means that key; its secret is not repeated.
            key = store.revoke(key_id.removeprefix("pw_").partition("_")[0])
        except UnknownKey as error:
            raise UserError(str(error)) from error
    if as_json:
        print_json(_row(key))
    else:
        console.print(f"{key.id} of project {key.project} is revoked", markup=False)


@contextmanager
def _store(settings: Settings) -> Iterator[KeyStore]:
    from collector.control import Control
    from collector.keys import KeyStore

    control = Control(writable(settings).data_dir)
    try:
        yield KeyStore(control)
    finally:
        control.close()


def _row(key: ApiKey) -> dict[str, Any]:
    """A key as it is shown: never its secret, and not the hash of it."""
    return {
        "id": key.id,
        "project": key.project,
        "roles": list(key.roles),
        "name": key.name,
        "state": key.state(time.time()),
        "created_at": _time(key.created_at),
        "last_used_at": _time(key.last_used_at),
        "expires_at": _time(key.expires_at),
        "revoked_at": _time(key.revoked_at),
        "events_per_second": key.events_per_second,
        "bytes_per_day": key.bytes_per_day,
    }


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return "–" if value is None else str(value)


def _quotas(row: dict[str, Any]) -> str:
    quotas = []
    if row["events_per_second"] is not None:
        quotas.append(f"{row['events_per_second']:g} events/s")
    if row["bytes_per_day"] is not None:
        quotas.append(f"{row['bytes_per_day']:,} bytes/day")
    return ", ".join(quotas) or "–"


def _moment(text: str | None) -> float | None:
    """Unix seconds of an ``--expires``: a time from now, or a time."""
    if text is None:
        return None
    if found := _DURATION.fullmatch(text):
        return time.time() + int(found[1]) * _UNITS_S[found[2]]
    try:
        nanoseconds = parse_instant(text)
    except EventError as error:
        raise UserError(f"--expires: expected 12h, 90d or an RFC 3339 time, got {text!r:.60}") from error
    return None if nanoseconds is None else nanoseconds / 1e9


def _size(text: str | None) -> int | None:
    if text is None:
        return None
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UserError(f"--bytes-per-day: expected a number of bytes, or one of KiB, MiB, GiB; got {text!r:.60}")
    return int(found[1]) * _SIZES[found[2] or ""]
