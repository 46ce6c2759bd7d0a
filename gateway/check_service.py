"""What the doctor learns from a running service: its readiness and its own counters, each with the mend."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
from prometheus_client.parser import text_string_to_metric_families

from collector.control import Control
from collector.keys import KeyStore
from collector.lock import Holder
from gateway.check import Check
from gateway.exposure import is_exposed
from gateway.intake import key_header, service_url
from pickwise.settings import Settings

#: What was received is visible within this time, seconds.
SLOW_LAG = 3.0
#: An hour without events is worth a word, seconds.
QUIET = 3_600.0
#: A log backlog beyond this means that the flusher does not keep up, bytes.
LARGE_BACKLOG = 256 * 2**20
#: Shares of all requests, items and rows beyond which refusals and repeats are no accident.
_MANY_OVERLOADED = 0.01
_MANY_REJECTED = 0.05
_MANY_REPEATS = 0.3
#: Fewer repeats than this say nothing: every exporter sends something again now and then.
_FEW_REPEATS = 100
#: Fewer commits than this say nothing of their p99.
_FEW_COMMITS = 100
_TIMEOUT_S = 10.0
_METRICS_HINT = "set OTEL_METRICS_EXPORTER=none in the applications, or send metrics elsewhere"

#: What the items of a kind are called.
_ITEMS = {"traces": "spans", "logs": "log records"}
_NO_KEY_MEND = "give the sender a key in OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20KEY"
#: The same for requests that had a good key.
_DENIED_MENDS = {
    "role": "for `role` a key with that role (`pickwise keys create --role …`)",
    "project": "for `project` a key of that project, or leave the project out of the request",
}


class Counters:
    """One reading of ``/metrics``."""

    def __init__(self, exposition: str) -> None:
        self._samples = [sample for family in text_string_to_metric_families(exposition) for sample in family.samples]

    def total(self, name: str, **labels: str) -> float:
        """The sum of the samples with these labels; 0 where there is none."""
        return sum(
            sample.value for sample in self._samples if sample.name == name and labels.items() <= sample.labels.items()
        )

    def by(self, name: str, label: str) -> dict[str, float]:
        """The sums above 0 by the value of a label, largest first."""
        sums: dict[str, float] = {}
        for sample in self._samples:
            if sample.name == name and sample.value:
                sums[sample.labels[label]] = sums.get(sample.labels[label], 0.0) + sample.value
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    def quantile(self, name: str, share: float) -> float | None:
        """A quantile of a histogram without labels, by the line within its bucket; None without samples."""
        buckets = sorted(
            (float(sample.labels["le"]), sample.value) for sample in self._samples if sample.name == f"{name}_bucket"
        )
        if not buckets or not buckets[-1][1]:
            return None
        rank = share * buckets[-1][1]
        below, count_below = 0.0, 0.0
        for bound, count in buckets:
            if count >= rank:
                within = (rank - count_below) / (count - count_below) if count > count_below else 1.0
                return below if math.isinf(bound) else below + (bound - below) * within
            below, count_below = bound, count
        return below


class Seen(NamedTuple):
    """A running service: how it counts now and, where a backlog was found, some moments later."""

    settings: Settings
    held: Holder
    now: Counters
    later: Counters


def service_checks(settings: Settings, held: Holder) -> Iterator[Check]:
    """All findings about the service that holds the folder."""
    if held.http_port is None:
        yield Check("service", "ok", f"process {held.pid} on {held.host} holds the folder; it has no HTTP port to ask")
        return
    yield Check("service", "ok", f"process {held.pid} on {held.host} holds the folder, HTTP port {held.http_port}")
    yield _keys(settings, held)
    try:
        with httpx.Client(
            base_url=service_url(held), headers=key_header(settings), timeout=_TIMEOUT_S, trust_env=False
        ) as client:
            yield _ready(client.get("/readyz"))
            answer = client.get("/metrics")
            if answer.is_error:
                yield _closed(answer)
                return
            now = Counters(answer.text)
            later = _later(client, now, settings)
    except httpx.HTTPError as error:
        finding = f"{service_url(held)} does not answer: {type(error).__name__}: {error}"
        mend = "look into the service's output, and stop it (SIGTERM) and start it again: the log keeps what it took"
        yield Check("ready", "bad", finding, mend)
        return
    seen = Seen(settings, held, now, later)
    for look in _LOOKS:
        check = look(seen)
        if check is not None:
            yield check


def _ready(answer: httpx.Response) -> Check:
    if answer.is_success:
        return Check("ready", "ok", "events can be taken")
    mend = "mend what it names; exporters try again meanwhile"
    return Check("ready", "bad", f"events cannot be taken: {answer.text:.300}", mend)


def _closed(answer: httpx.Response) -> Check:
    finding = f"/metrics answered {answer.status_code}, so the service's counters were not examined"
    if answer.status_code in (401, 403):
        return Check("counters", "note", finding, "give a key with the role read in PICKWISE_API_KEY")
    return Check("counters", "bad", f"{finding}: {answer.text:.200}", "see the service's output")


def _keys(settings: Settings, held: Holder) -> Check:
    exposed = is_exposed(settings.model_copy(update={"host": held.address or "127.0.0.1"}))
    states = _key_states(settings.data_dir)
    where = f"it listens on {held.address}"
    needs_key = bool(states) if settings.require_keys is None else settings.require_keys
    if needs_key and "active" not in states:
        finding = f"{where}; requests need an API key, and no key is active: {_gone(states)}. All are answered 401"
        return Check("keys", "bad", finding, f"`pickwise keys create --data-dir {settings.data_dir}`")
    if exposed and not needs_key:
        mend = (
            f"`pickwise keys create --data-dir {settings.data_dir}`, and leave require_keys out; or listen on 127.0.0.1"
        )
        return Check("keys", "bad", f"{where}, which other machines reach, and asks for no key", mend)
    if needs_key:
        return Check("keys", "ok", f"{where}; requests need an API key")
    return Check("keys", "ok", f"{where}, for this machine only; no key is needed")


def _gone(states: set[str]) -> str:
    """What became of the keys. The end of the last one closes a service, it does not open it."""
    return f"the last was {' or '.join(sorted(states))}" if states else "there is none"


def _key_states(data_dir: Path) -> set[str]:
    """`active`, `revoked`, `expired`: what the keys of the folder are; nothing where it has none."""
    if not (data_dir / "control.sqlite").exists():
        return set()
    control = Control(data_dir)
    try:
        return {key.state(time.time()) for key in KeyStore(control).all()}
    finally:
        control.close()


def _later(client: httpx.Client, now: Counters, settings: Settings) -> Counters:
    """A second reading, after a commit was due, where something waits for one."""
    if not now.total("pickwise_backlog_requests"):
        return now
    time.sleep(settings.flush_interval_s + 1.0)
    answer = client.get("/metrics")
    return Counters(answer.text) if answer.is_success else now


# -- what the counters tell ---------------------------------------------------------------------------------------


def _backlog(seen: Seen) -> Check:
    now, later = seen.now, seen.later
    waiting = later.total("pickwise_backlog_requests")
    size = later.total("pickwise_backlog_bytes")
    finding = f"{waiting:.0f} requests ({size / 2**20:.1f} MiB) are not committed yet"
    progress = ("pickwise_lag_seconds_count", "pickwise_commit_seconds_count")
    is_stuck = later is not now and all(now.total(name) == later.total(name) for name in progress)
    if waiting >= now.total("pickwise_backlog_requests") > 0 and is_stuck:
        mend = (
            "free disk space, look at `commits` here and at the service's output; the log keeps what was acknowledged"
        )
        return Check("backlog", "bad", f"{finding}, and none was while this was examined", mend)
    if size > LARGE_BACKLOG:
        grown = size - now.total("pickwise_backlog_bytes")
        trend = "growing" if grown > 0 else "shrinking"
        mend = "give it more of a processor or a faster disk, or send less; beyond `backlog_bytes` it answers 503"
        return Check("backlog", "bad" if grown > 0 else "note", f"{finding}, {trend}", mend)
    return Check("backlog", "ok", finding)


def _lag(seen: Seen) -> Check:
    p99 = seen.later.quantile("pickwise_lag_seconds", 0.99)
    if p99 is None:
        return Check("lag", "ok", "nothing was committed since the start")
    finding = f"from receipt to visible: p99 {p99:.1f} s since the start"
    if p99 <= SLOW_LAG:
        return Check("lag", "ok", finding)
    interval = seen.settings.flush_interval_s
    if interval >= SLOW_LAG / 2:
        return Check("lag", "bad", finding, f"lower the setting flush_interval_s, now {interval:g}")
    mend = (
        "a busy processor or a slow disk: compare pickwise_commit_seconds, or set self_traces to see which step it is"
    )
    commits = seen.later.total("pickwise_lag_seconds_count")
    # Of few the slowest is all that a quantile tells: often the first, while the service was starting.
    if commits < _FEW_COMMITS:
        return Check("lag", "note", f"{finding}, of {commits:.0f} commits", mend)
    return Check("lag", "bad", finding, mend)


def _overload(seen: Seen) -> Check:
    count = seen.now.total("pickwise_requests_total", outcome="overloaded")
    share = count / max(1.0, seen.now.total("pickwise_requests_total"))
    if not count:
        return Check("overload", "ok", "no request was refused for want of room")
    at_once = seen.now.total("pickwise_inflight_refused_total")
    finding = f"{count:.0f} requests ({share:.1%}) were told to come again, {at_once:.0f} for too many at once"
    mend = (
        "send larger batches less often, or raise inflight_requests and inflight_bytes"
        if at_once >= count / 2
        else "a full or slow disk, or a backlog: see `disk` and `backlog`"
    )
    return Check("overload", "bad" if share > _MANY_OVERLOADED else "note", finding, mend)


def _rejected(seen: Seen) -> Check:
    kinds = {kind: n for kind, n in seen.now.by("pickwise_rejected_total", "kind").items() if kind != "metrics"}
    count = sum(kinds.values())
    if not count:
        return Check("rejected items", "ok", "no item was refused")
    share = count / (count + seen.now.total("pickwise_accepted_total"))
    fields = list(seen.now.by("pickwise_rejected_fields_total", "field"))
    reason = f"; most often wrong: {', '.join(fields[:3])}" if fields else ""
    finding = (
        f"{_listed({_ITEMS.get(kind, kind): n for kind, n in kinds.items()})} were refused ({share:.1%} of all){reason}"
    )
    mend = "the answers name each with its reason: see what the sender logs of partial success"
    return Check("rejected items", "bad" if share > _MANY_REJECTED else "note", finding, mend)


def _metric_points(seen: Seen) -> Check | None:
    count = seen.now.total("pickwise_rejected_total", kind="metrics")
    if not count:
        return None
    return Check("metric points", "note", f"{count:.0f} were sent; Pickwise keeps none", _METRICS_HINT)


def _denied(seen: Seen) -> Check | None:
    reasons = seen.now.by("pickwise_denied_total", "reason")
    if not reasons:
        return None
    mends = dict.fromkeys(_DENIED_MENDS.get(reason, _NO_KEY_MEND) for reason in reasons)
    mend = f"{'; '.join(mends)}; see docs/security.md"
    return Check("refused keys", "note", f"requests refused for their key: {_listed(reasons)}", mend)


def _throttled(seen: Seen) -> Check | None:
    keys = seen.now.by("pickwise_throttled_total", "key")
    if not keys:
        return None
    mend = "make these keys anew with a larger quota, or send less"
    return Check("quotas", "note", f"requests refused for a quota, by key: {_listed(keys)}", mend)


def _unmapped(seen: Seen) -> Check | None:
    count = seen.now.total("pickwise_dead_letters_total")
    if not count:
        return None
    return Check("dead letters", "bad", f"{count:.0f} records were set aside since the start", "see `rejected`")


def _commits(seen: Seen) -> Check:
    failures = seen.later.by("pickwise_commit_failures_total", "table")
    if not failures:
        slow = seen.later.total("pickwise_commit_seconds_sum") / max(
            1.0, seen.later.total("pickwise_commit_seconds_count")
        )
        return Check("commits", "ok", f"none failed; one takes {slow * 1e3:.0f} ms")
    mend = "free disk space and check the folder's permissions and disk; each is tried again until it succeeds"
    return Check("commits", "bad", f"failed attempts: {_listed(failures)}", mend)


def _log_damage(seen: Seen) -> Check | None:
    damaged = seen.now.total("pickwise_wal_damaged_total")
    torn = seen.now.total("pickwise_wal_torn_bytes_total")
    if damaged:
        mend = "check the disk (dmesg, SMART); the damaged files are kept as wal/*.damaged"
        return Check("log damage", "bad", f"{damaged:.0f} synced places of the log were damaged at start", mend)
    if torn:
        finding = f"{torn:.0f} bytes of a write that a crash interrupted were cut at start"
        return Check(
            "log damage", "note", finding, "nothing is lost: it was never acknowledged, the sender comes again"
        )
    return None


def _repeats(seen: Seen) -> Check:
    repeats, rows = seen.now.total("pickwise_duplicates_total"), seen.now.total("pickwise_rows_total")
    share = repeats / max(1.0, repeats + rows)
    finding = f"{repeats:.0f} rows ({share:.0%}) were repeats and dropped"
    if repeats < _FEW_REPEATS or share <= _MANY_REPEATS:
        return Check("repeats", "ok", finding)
    mend = "an exporter sends again what was taken (raise OTEL_EXPORTER_OTLP_TIMEOUT), or two of them send the same"
    return Check("repeats", "note", finding, mend)


def _redactions(seen: Seen) -> Check:
    kinds = seen.now.by("pickwise_redactions_total", "kind")
    allowed, calls = seen.settings.allow_arguments, seen.now.total("pickwise_rows_total", table="calls")
    if allowed and calls and not kinds.get("argument"):
        finding = f"none of the arguments of {calls:.0f} call rows was removed; allow_arguments names {len(allowed)}"
        mend = f"check that these may be kept: {', '.join(allowed[:10])}"
        return Check("redactions", "note", finding, mend)
    return Check("redactions", "ok", f"removed or masked: {_listed(kinds) or 'nothing yet'}")


def _quiet(seen: Seen) -> Check:
    last = seen.now.total("pickwise_last_accepted_timestamp_seconds")
    silent = time.time() - max(last, seen.held.started_at)
    if silent <= QUIET:
        return Check("events", "ok", f"the last came {silent:.0f} s ago" if last else "none yet since the start")
    since = "came" if last else "(the start of the service; none came since)"
    finding = f"the last event {since} {silent / 3_600:.1f} h ago"
    mend = f"point exporters at it: OTEL_EXPORTER_OTLP_ENDPOINT={service_url(seen.held)}"
    return Check("events", "note", finding, mend)


_LOOKS: tuple[Callable[[Seen], Check | None], ...] = (
    _backlog,
    _lag,
    _overload,
    _rejected,
    _metric_points,
    _denied,
    _throttled,
    _unmapped,
    _commits,
    _log_damage,
    _repeats,
    _redactions,
    _quiet,
)


def _listed(counts: dict[str, float]) -> str:
    return ", ".join(f"{count:.0f} {name}" for name, count in counts.items())
