"""Numbers and times as people read them. What is not known is a dash, never a zero."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

DASH = "–"
#: No-break space between a number and its unit.
_GAP = "\u00a0"
#: A share with fewer observations than this shows no decimal: it would be false precision.
_FEW = 50


def share(value: float | None, n: int | None = None) -> str:
    """A fraction in percent; one decimal where ``n`` carries it, or where there is one in a setting (no ``n``)."""
    if not _known(value):
        return DASH
    assert value is not None
    is_round = value in (0.0, 1.0) or (n is None and math.isclose(value * 100, round(value * 100), abs_tol=1e-9))
    digits = 0 if is_round or (n is not None and n < _FEW) else 1
    return f"{value * 100:.{digits}f}{_GAP}%"


def bounds(low: float, high: float) -> str:
    """An interval of fractions, in percent."""
    return f"{max(low, 0.0) * 100:.1f}{DASH}{min(high, 1.0) * 100:.1f}{_GAP}%"


def milliseconds(value: float | None) -> str:
    """A duration in ms, in seconds from one second on."""
    if not _known(value):
        return DASH
    assert value is not None
    if value >= 100_000:
        return duration(value / 1000)
    if value >= 1000:
        return f"{value / 1000:.1f}{_GAP}s" if value >= 10_000 else f"{value / 1000:.2f}{_GAP}s"
    return f"{value:.0f}{_GAP}ms" if value >= 10 else f"{value:.1f}{_GAP}ms"


def duration(seconds: float | None) -> str:
    """Seconds as the two largest of days, hours, minutes, seconds."""
    if not _known(seconds):
        return DASH
    assert seconds is not None
    left, amounts = round(seconds), []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        amount, left = divmod(left, size)
        amounts.append((amount, unit))
    first = next((index for index, (amount, _) in enumerate(amounts) if amount), len(amounts) - 1)
    parts = [f"{amount}{_GAP}{unit}" for amount, unit in amounts[first : first + 2] if amount]
    return " ".join(parts) or f"0{_GAP}s"


def count(value: float | None) -> str:
    """A whole number with thousands separators."""
    if not _known(value):
        return DASH
    assert value is not None
    return f"{value:,.0f}"


def calls(n: int) -> str:
    return f"{n:,}{_GAP}{'call' if n == 1 else 'calls'}"


def number(value: float | None, digits: int = 2) -> str:
    """A plain number."""
    if not _known(value):
        return DASH
    assert value is not None
    return f"{value:,.{digits}f}"


def with_unit(value: float | None, unit: str, n: int | None = None) -> str:
    """A metric's value by its declared unit."""
    match unit:
        case "fraction":
            return share(value, n)
        case "ms":
            return milliseconds(value)
        case "s":
            return duration(value)
        case "tokens" | "spells":
            return count(value)
        case _:
            return number(value)


def change(now: float | None, before: float | None, unit: str) -> str:
    """What was added since the window before; points for shares. Empty where one of the two is not known."""
    if not _known(now) or not _known(before):
        return ""
    assert now is not None
    assert before is not None
    added = now - before
    sign = "+" if added >= 0 else "\u2212"
    size = abs(added)
    if unit == "fraction":
        return f"±0{_GAP}pp" if size < 0.0005 else f"{sign}{size * 100:.1f}{_GAP}pp"
    return f"{sign}{with_unit(size, unit)}"


def moment(time: datetime | None) -> str:
    """Date and time to the second, UTC."""
    return DASH if time is None else time.astimezone(UTC).strftime("%-d %b %Y, %H:%M:%S")


def clock(time: datetime | None) -> str:
    """Day and minute, for lists."""
    return DASH if time is None else time.astimezone(UTC).strftime("%-d %b %H:%M")


def span(start: datetime | None, end: datetime | None) -> str:
    """A range of time in UTC, naming the day once where both ends share it."""
    if start is None or end is None:
        return DASH
    first, last = start.astimezone(UTC), end.astimezone(UTC)
    if first.date() == last.date():
        return f"{first:%-d %b %Y}, {first:%H:%M}{DASH}{last:%H:%M} UTC"
    if last - first > timedelta(days=14):
        return f"{first:%-d %b %Y} {DASH} {last:%-d %b %Y}"
    return f"{first:%-d %b %H:%M} {DASH} {last:%-d %b %Y %H:%M} UTC"


def words(name: str) -> str:
    """An identifier of ours as words: ``top1_acceptance_rate`` → ``Top-1 acceptance``."""
    return _LABELS.get(name) or name.removesuffix("_rate").removesuffix("_ms").replace("_", " ").capitalize()


_LABELS = {
    "top1_acceptance_rate": "Top-1 acceptance",
    "zero_pick_rate": "No pick at all",
    "over_pick_rate": "More than 6 picks",
    "off_list_rate": "Picked off the list",
    "skip_rate": "First one skipped",
    "corrected_rate": "Corrected afterwards",
    "failed_tool_rate": "Failed calls",
    "caller_fault_rate": "Caller's fault",
    "repair_rate": "Bad arguments repaired",
    "loop_rate": "Sessions in a loop",
    "hallucinated_tool_rate": "Invented names",
    "near_miss_rate": "Near misses",
    "retired_call_rate": "Retired skills called",
    "unknown_argument_rate": "Unknown arguments",
    "fallback_rate": "Fallback",
    "degraded_seconds": "Time degraded",
    "half_failure": "Half failures",
    "no_match_rate": "No match",
    "menu_tokens": "Menu tokens",
    "p99": "p99",
    "llm_select": "LLM select",
    "http_4xx": "HTTP 4xx",
    "http_5xx": "HTTP 5xx",
}


def _known(value: Any) -> bool:
    return value is not None and math.isfinite(value)
