"""Times as senders get them wrong: the number is right, its unit is not."""

from __future__ import annotations

#: 2262-01-01: a little before the end of 64 bits, as what a span tells is put in order after its start.
LAST_NS = 9_214_646_400 * 10**9
#: What the clock of a sender showed, or will show, from 2017 to 2033, in seconds. As nanoseconds these are moments of
#: January 1970: nothing is taken for wrong that could be right, nor the small numbers of a made-up clock.
_FIRST_S, _LAST_S = 1_500_000_000, 2_000_000_000
_UNITS = ((1, "seconds"), (10**3, "milliseconds"), (10**6, "microseconds"))
#: Behind the last of them: from here on a time is what it says.
PLAUSIBLE_NS = _LAST_S * 10**6


def wrong_unit(nanoseconds: int) -> str | None:
    """The unit that an alleged count of nanoseconds is really in, or None."""
    if nanoseconds >= PLAUSIBLE_NS:
        return None
    return next((name for factor, name in _UNITS if _FIRST_S <= nanoseconds // factor < _LAST_S), None)


def time_problem(field: str, nanoseconds: int) -> str | None:
    """Why the time cannot be taken, or None. 0 is absent."""
    if PLAUSIBLE_NS <= nanoseconds < LAST_NS:
        return None
    if not 0 <= nanoseconds < LAST_NS:
        return f"{field}: expected Unix nanoseconds, before 2262, got {nanoseconds!s:.40}"
    unit = wrong_unit(nanoseconds)
    return f"{field}: expected Unix nanoseconds, got {nanoseconds}, which looks like {unit}" if unit else None
