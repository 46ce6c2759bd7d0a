"""An OTLP request as the archive keeps it: redacted items, and beside them what these do not tell any more."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from collector.facts import OfferedSkill
from collector.row_types import Row
from collector.spans import LogRecord, Span

Item = Span | LogRecord
#: An event among those of its item: table, event id ('' where it has none), and how many of the same came before it.
EventKey = tuple[str, str, int]
RowsByTable = dict[str, list[Row]]


class Carried(msgspec.Struct, omit_defaults=True, gc=False):
    """What the redacted item does not tell of one event, or tells wrongly."""

    event: EventKey
    #: `changed`: the item tells some ``columns`` of its row otherwise. `lost`: it does not tell of the event; `wrong`:
    #: it tells of another one in its place; ``columns`` are the whole row then. `spurious`: there was no such event.
    state: Literal["changed", "lost", "wrong", "spurious"] = "changed"
    columns: Row = {}


class ArchivedItem(msgspec.Struct, omit_defaults=True, gc=False):
    """A redacted span or log record."""

    span: Span | None = None
    log: LogRecord | None = None
    carried: list[Carried] = []
    #: The tools that were offered, where the redacted item tells otherwise.
    offered: list[OfferedSkill] | None = None

    @property
    def held(self) -> Item:
        held = self.span if self.span is not None else self.log
        assert held is not None
        return held


class ArchivedRequest(msgspec.Struct, omit_defaults=True, gc=False):
    """An OTLP request: what its log record said of it, and its items that some mapper could know."""

    seq: int
    project: str
    received_at: int
    items: list[ArchivedItem]
    imported: bool = False


class EncodedRequest(NamedTuple):
    """An archived request as the archive writes it."""

    seq: int
    received_at: int
    #: The ``ArchivedRequest`` as MessagePack.
    encoded: bytes

    @classmethod
    def of(cls, request: ArchivedRequest) -> EncodedRequest:
        return cls(request.seq, request.received_at, msgspec.msgpack.encode(request))
