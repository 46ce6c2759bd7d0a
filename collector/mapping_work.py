"""What goes to whoever maps records, and what comes back: values that go between processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl

from collector.archived import EncodedRequest
from collector.faults import Fault
from collector.forgotten import Forgotten
from collector.observed import Offers
from collector.segment import Header, Record


class Work(NamedTuple):
    """Records to map, in their order, and what is to be known about them."""

    records: Sequence[Record]
    #: Up to which number each table has the log already.
    versions: Mapping[str, int]
    #: Requests after this number go to the archive; None: none do.
    archive_after: int | None
    forgotten: Forgotten = Forgotten()


class OfferedIn(NamedTuple):
    """What a record offered in one project: the observed registry learns from it."""

    header: Header
    project: str
    offers: Offers


@dataclass(slots=True)
class Mapped:
    """What a run of records became. ``redactions`` counts what was taken out of it, by kind."""

    frames: dict[str, pl.DataFrame] = field(default_factory=dict)
    offered: list[OfferedIn] = field(default_factory=list)
    archived: list[EncodedRequest] = field(default_factory=list)
    set_aside: list[tuple[Record, Fault]] = field(default_factory=list)
    redactions: Counter[str] = field(default_factory=Counter)
