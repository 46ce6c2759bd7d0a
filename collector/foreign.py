"""What a body says of projects where a key has decided: an item that names another one is refused, never moved.

The door names the refused to the sender and the flusher leaves them out: the same judgement of the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from collector.otlp import ParsedLogs, ParsedTraces
from collector.spans import LogRecord, Span
from pickwise.attributes import EVENT, PROJECT

_MARK = PROJECT.encode()
_NAMED = 5


class OwnTraces:
    """A validated trace request, but for the spans of other projects."""

    def __init__(self, parsed: ParsedTraces, project: str) -> None:
        self._parsed = parsed
        self._project = project
        self.span_count = parsed.span_count
        foreign = [span.name for span in parsed.spans() if _is_foreign(span, project)]
        self.rejected = parsed.rejected + len(foreign)
        self.message = _message(parsed.message, foreign, project)

    def spans(self) -> Iterator[Span]:
        return (span for span in self._parsed.spans() if not _is_foreign(span, self._project))


class OwnLogs:
    """A validated log request, but for the records of other projects."""

    def __init__(self, parsed: ParsedLogs, project: str) -> None:
        self._parsed = parsed
        self._project = project
        self.record_count = parsed.record_count
        foreign = [record.event_name for record in parsed.records() if _is_foreign(record, project)]
        self.rejected = parsed.rejected + len(foreign)
        self.message = _message(parsed.message, foreign, project)

    def records(self) -> Iterator[LogRecord]:
        return (record for record in self._parsed.records() if not _is_foreign(record, self._project))


def own_traces(parsed: ParsedTraces, body: bytes, project: str) -> ParsedTraces | OwnTraces:
    """The request without the spans that name another project than the key's."""
    return OwnTraces(parsed, project) if _may_name_another(body, project) else parsed


def own_logs(parsed: ParsedLogs, body: bytes, project: str) -> ParsedLogs | OwnLogs:
    """The same for log records."""
    return OwnLogs(parsed, project) if _may_name_another(body, project) else parsed


def _may_name_another(body: bytes, project: str) -> bool:
    """Whether the items need a look: senders name their own project, in one form, or none."""
    if body.rfind(_MARK) < 0:  # nearly always, and told twice as fast as by counting
        return False
    size = len(project)
    # The attribute on the wire: its key, then the value's message and the string in it.
    return body.count(_MARK) != body.count(_MARK + bytes((0x12, size + 2, 0x0A, size)) + project.encode())


def _is_foreign(item: Span | LogRecord, project: str) -> bool:
    if _differs(item.resource.get(PROJECT), project) or _differs(item.attributes.get(PROJECT), project):
        return True
    events = item.events if isinstance(item, Span) else []
    return any(event.name == EVENT and _differs(event.attributes.get(PROJECT), project) for event in events)


def _differs(named: object, project: str) -> bool:
    return named not in (None, "", project)


def _message(message: str, foreign: list[str], project: str) -> str:
    if not foreign:
        return message
    names = ", ".join(f"{name:.60}" for name in foreign[:_NAMED])
    more = f" and {len(foreign) - _NAMED} more" if len(foreign) > _NAMED else ""
    reason = f"{names}{more}: project: expected {project}, the key's, or none; {PROJECT} names another project"
    return f"{message}; {reason}" if message else reason
