"""Every setting, declared once. Order: flags, then ``PICKWISE_*`` variables, then ``pickwise.toml``."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, Field, SecretStr, ValidationError, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from pickwise.known_tools import PROXIES, ROUTERS
from pickwise.tool_routes import ProxyTool, RouterTool, ToolRoutes, as_entries

_PREFIX = "PICKWISE_"
_FILE = "pickwise.toml"
#: Flags that are not named after their setting.
_FLAGS = {"error_patterns": "--error-pattern"}


class ErrorPattern(BaseModel):
    """A result text that means failure, for tools that return their errors as ordinary results."""

    pattern: str = Field(description="regular expression, searched in the result text")
    error_kind: str = Field("tool_error", description="the error_kind that a match is given")
    skill_id: str | None = Field(None, description="only for this skill; absent: for all")

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"expected a regular expression: {error}") from error
        return value


def _as_list(value: Any) -> Any:
    """A list in a variable: JSON, or the items with commas between them."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError as error:
            raise ValueError(f"expected a JSON list or items with commas between them: {error}") from error
    return [item.strip() for item in value.split(",") if item.strip()]


Strings = Annotated[list[str], NoDecode, BeforeValidator(_as_list)]


#: Tables whose rows are events of a day; the others are histories that count as a whole.
RETAINED_TABLES = ("selections", "calls", "feedback", "routes", "portraits", "alerts")


def _as_ages(value: Any) -> Any:
    """Days by table: an object, or in a variable JSON or `calls=30, feedback=365`."""
    if isinstance(value, str):
        text = value.strip()
        pairs = (item.partition("=") for item in text.split(",") if item.strip())
        try:
            value = json.loads(text) if text.startswith("{") else {k.strip(): float(days) for k, _, days in pairs}
        except ValueError as error:
            raise ValueError(f"expected a JSON object or TABLE=DAYS with commas between them: {error}") from error
    if not isinstance(value, dict):
        return value
    for table, days in value.items():
        if table not in RETAINED_TABLES:
            raise ValueError(f"{table!r:.40}: expected one of {', '.join(RETAINED_TABLES)}")
        if not isinstance(days, int | float) or isinstance(days, bool) or days <= 0:
            raise ValueError(f"{table}: expected a number of days above 0, got {days!r:.40}")
    return value


def _as_patterns(value: Any) -> Any:
    """Accept one pattern, a list of strings or the full objects; in a variable as JSON, or one bare pattern."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = json.loads(value)
    values = [value] if isinstance(value, str | dict) else value
    if not isinstance(values, list | tuple):
        return values
    return [{"pattern": item} if isinstance(item, str) else item for item in values]


def _http_url(value: str) -> str:
    """A URL to post to; the port of one that is none raises ValueError too."""
    target = urlsplit(value)
    if target.scheme not in ("http", "https") or not target.hostname or target.port == 0:
        raise ValueError("expected a URL like http://127.0.0.1:4320")
    if target.username is not None or target.query or target.fragment:
        raise ValueError("expected a URL without user, query and fragment; keys go into OTEL_EXPORTER_OTLP_HEADERS")
    return value


def _is_web_address(value: str) -> bool:
    try:
        target = urlsplit(value)
        return target.scheme in ("http", "https") and bool(target.hostname) and target.port != 0
    except ValueError:  # a port that is none
        return False


class Settings(BaseSettings):
    """Settings of one installation. ``pickwise doctor`` prints what is in force and from where."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, toml_file=_FILE, extra="forbid", frozen=True, validate_default=True
    )

    data_dir: Path = Field(Path("pickwise-data"), description="folder of the log, the tables and the control state")
    host: str = Field("127.0.0.1", description="address to listen on")
    http_port: int = Field(4318, ge=0, le=65535, description="OTLP/HTTP, JSON and the read API; 0 takes a free port")
    grpc_port: int = Field(4317, ge=0, le=65535, description="OTLP/gRPC; 0 takes a free port")
    dashboard_port: int = Field(8501, ge=0, le=65535, description="the dashboard; 0 takes a free port")
    insecure: bool = Field(False, description="allow a non-loopback address without API keys")
    require_keys: bool | None = Field(
        None, description="whether requests need an API key; absent: as soon as the folder has one"
    )
    api_key: SecretStr | None = Field(None, description="the key that commands send to a running service")

    flush_interval_s: float = Field(1.0, gt=0, description="longest wait from acknowledgement to commit, seconds")
    flush_events: int = Field(5_000, gt=0, description="commit at the latest after so many events")
    queue_bytes: int = Field(64 * 2**20, gt=0, description="acknowledgements waiting for the disk, bytes; beyond: 503")
    inflight_bytes: int = Field(
        128 * 2**20, gt=0, description="bodies that are read and judged at once, bytes; beyond: wait, then 503"
    )
    inflight_requests: int = Field(128, gt=0, description="the same in requests; as many more may wait")
    backlog_bytes: int = Field(2 * 2**30, gt=0, description="log not yet committed, bytes; beyond: 503")
    map_processes: int = Field(
        2, ge=0, description="processes that map what was taken, started when there is much; 0: the collector's own"
    )
    compact_every: int = Field(60, gt=0, description="commits of a table between two compactions")

    self_traces: str | None = Field(
        None,
        description="URL of another OTLP/HTTP receiver for spans of the collector's own work, see "
        "[telemetry](telemetry.md); absent: none",
    )
    self_traces_ratio: float = Field(1.0, ge=0, le=1, description="share of the commits that are traced")

    store_queries: Literal["redacted", "hash"] = Field("redacted", description="keep the masked text, or a keyed hash")
    redact_before_log: bool = Field(
        False,
        description="map and redact before logging, so that nothing raw meets the disk, see "
        "[data lifecycle](data-lifecycle.md)",
    )
    allow_arguments: Strings = Field([], description="argument names whose values are kept, as skill_id:name or name")
    error_patterns: Annotated[list[ErrorPattern], NoDecode, BeforeValidator(_as_patterns)] = Field(
        [], description="results that mean failure although the call reports none"
    )
    router_tools: Annotated[list[RouterTool], NoDecode, BeforeValidator(as_entries)] = Field(
        [], description="tools whose result lists skills to choose from, see [routers](routers.md)"
    )
    proxy_tools: Annotated[list[ProxyTool], NoDecode, BeforeValidator(as_entries)] = Field(
        [], description="tools whose arguments name the skill that they call, see [routers](routers.md)"
    )
    known_tools: bool = Field(True, description="know the router and proxy tools of common libraries by their names")

    archive_days: float = Field(
        3.0, ge=0, description="redacted requests are kept so long for `pickwise replay`, days; 0: not at all"
    )
    dead_letter_days: float = Field(
        14.0, gt=0, description="raw requests that could not be mapped, and damaged log files, are kept so long, days"
    )
    retention_days: float | None = Field(
        None, gt=0, description="events older than this are removed, days; absent: kept. Imported history stays"
    )
    retention: Annotated[dict[str, float], NoDecode, BeforeValidator(_as_ages)] = Field(
        {},
        description="the same per table, in place of `retention_days`: `selections`, `calls`, `feedback`, `routes`, "
        "`portraits`, `alerts`; as JSON, or `calls=30, feedback=365`",
    )

    excluded_environments: Strings = Field(
        ["test", "staging", "eval", "ci"], description="environments that learning, flags and exploration leave out"
    )
    embedder: str = Field(
        "use",
        description="`use` (multilingual, no torch), `minilm`, `words` (none), or the name or folder of a "
        "sentence-transformers model: looked up on this machine only, no hub is asked (`hf download NAME` fetches one)",
    )
    weights_refresh_s: float = Field(
        240.0, gt=0, description="seconds between two refreshes: what happened is served within five minutes"
    )
    ranker_socket: Path | None = Field(
        None,
        description="Unix socket of the ranker's own process; `serve` makes one. Absent: `collect` ranks by itself",
    )
    model_poll_s: float = Field(10.0, gt=0, description="seconds between two looks for a newly promoted model")
    train_budget_s: float = Field(
        60.0, gt=0, description="seconds in which training may try hyperparameters; the first is always tried"
    )
    gate_min_effective_sample: float = Field(
        200.0, ge=1, description="promotion gate: (Σw)² ÷ Σw² of the later picks, below which nothing is promoted"
    )
    gate_golden_min: int = Field(20, ge=1, description="labelled turns from which the golden set is looked at")
    gate_golden_drop: float = Field(0.0, ge=0, le=1, description="largest drop of NDCG@5 on the golden set")
    gate_item_position_min: int = Field(
        3_000, ge=1, description="shuffled impressions from which the item-position weight is looked at"
    )
    gate_item_position_off: float = Field(0.1, gt=0, description="how far from 1 the item-position weight may be")
    gate_concentration_rise: float = Field(
        0.2, ge=0, le=1, description="largest rise of the Gini coefficient of exposure in the first five ranks"
    )
    gate_never_shown_rise: float = Field(
        0.1, ge=0, le=1, description="largest rise of the share of offered skills that never reach the first five ranks"
    )
    gate_scoring_p99_ms: float = Field(
        25.0, gt=0, description="largest p99 of scoring 50 candidates, milliseconds of processor time"
    )
    canary_fraction: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of sessions that a promoted model ranks for until live traffic has judged it, see "
        "[the ranker](ranker.md); 0: all at once",
    )
    canary_min: int = Field(
        400, ge=1, description="ranked selections with a pick, of either version, from which a canary may be made full"
    )
    canary_margin: float = Field(
        0.05, gt=0, le=1, description="a canary that is not worse by this, at 95 % confidence, is made full"
    )
    nightly_at: str = Field("02:30", pattern=r"^([01]\d|2[0-3]):[0-5]\d$", description="UTC time of the nightly job")

    alert_rules: Path | None = Field(None, description="YAML file of alert rules; absent: the shipped rules")
    alert_interval_s: float = Field(15.0, gt=0, description="seconds between two evaluations of the alert rules")
    webhook_urls: Strings = Field([], description="where alert notifications are posted")
    webhook_secret: str | None = Field(None, description="key of the webhook signature (HMAC-SHA256)")

    @field_validator("self_traces")
    @classmethod
    def _receives_traces(cls, value: str | None) -> str | None:
        return value if value is None else _http_url(value)

    @field_validator("webhook_urls")
    @classmethod
    def _can_be_posted_to(cls, values: list[str]) -> list[str]:
        for value in values:
            if not _is_web_address(value.removeprefix("slack+").removeprefix("alertmanager+")):
                raise ValueError(f"expected URLs like https://hooks.example.com/pickwise, {value!r:.80} is none")
        return values

    @cached_property
    def tool_routes(self) -> ToolRoutes:
        """The router and proxy tools: the user's own hide known ones of the same names."""
        known = (ROUTERS, PROXIES) if self.known_tools else ([], [])
        return ToolRoutes((self.router_tools, self.proxy_tools), known)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


class SettingsError(ValueError):
    """A setting that cannot be used; the message names it and what was expected."""


#: Set by Pickwise itself for the processes of a service.
SUPERVISED = f"{_PREFIX}SUPERVISED"


def load_settings(**flags: Any) -> Settings:
    """Settings with the given flags in front; a flag that is None counts as not given. Raises SettingsError."""
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise SettingsError("; ".join(_problem(item, given) for item in error.errors())) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{_FILE}: expected TOML, {error}") from error


def source_of(name: str, flags: Container[str]) -> str:
    """Where a setting that is not the default comes from: a flag, a variable, or else the file."""
    if name in flags:
        return _FLAGS.get(name, f"--{name.replace('_', '-')}")
    variable = f"{_PREFIX}{name.upper()}"
    return variable if variable in map(str.upper, os.environ) else _FILE


def unknown_variables() -> Iterator[str]:
    """A sentence for each variable that looks like a setting and is none."""
    known = [f"{_PREFIX}{name.upper()}" for name in Settings.model_fields]
    for variable in sorted(os.environ):
        if variable.upper().startswith(_PREFIX) and variable.upper() not in (*known, SUPERVISED):
            yield f"unknown variable {variable:.80} is left out{_nearest(variable.upper(), known)}"


def _problem(item: ErrorDetails, flags: Container[str]) -> str:
    name = ".".join(map(str, item["loc"]))
    if item["type"] == "extra_forbidden" and len(item["loc"]) == 1:
        return f"unknown setting {name:.80} in {_FILE}{_nearest(name, Settings.model_fields)}"
    source = source_of(str(item["loc"][0]), flags) if item["loc"] else _FILE
    return f"{name}: {item['msg'].removeprefix('Value error, ')}, got {item['input']!r:.80} (from {source})"


def _nearest(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, known, 1)
    return f" (did you mean {close[0]}?)" if close else ""
