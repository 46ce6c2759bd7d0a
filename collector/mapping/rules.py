"""What a rule of a dialect is."""

from __future__ import annotations

from collections.abc import Callable

from collector.facts import Facts
from collector.spans import LogRecord, Span
from pickwise.settings import Settings

#: Maps a span that it knows; None for the others. A rule opens with its guard, as most spans are not its own.
Rule = Callable[[Span, Settings], Facts | None]
LogRule = Callable[[LogRecord, Settings], Facts | None]
