"""Log records that hold the rows of a request in place of the request, where `redact_before_log` asks for it.

Only its number in the log is not known when its rows are made; it is put in when they are read.
"""

from __future__ import annotations

from collections import Counter
from io import BytesIO
from typing import Any

import msgspec
import polars as pl

from collector.archived import ArchivedItem, ArchivedRequest, EncodedRequest
from collector.facts import OfferedSkill
from collector.forgotten import Forgotten
from collector.mapping.origin import origin_of
from collector.mapping_work import Mapped, OfferedIn, Work
from collector.observed import Offers
from collector.projects import project_of
from collector.redact import Redactor
from collector.segment import Record
from collector.skill_changes import SKILLS, masked_value
from collector.spans import Span
from collector.tables import FACT_TABLES, source_request

#: The encoding of such records.
ENCODING = "mapped"
#: What forgetting looks at in a row.
_MARKS = ("project", "session_id", "trace_id", "time", "time_is_receipt")


class _Offered(msgspec.Struct):
    project: str
    skills: list[OfferedSkill]
    candidates: dict[str, int]


class _Body(msgspec.Struct, omit_defaults=True):
    #: Arrow IPC by table, not packed, so that a damaged file can be searched for what is to be forgotten.
    frames: dict[str, bytes] = {}
    offered: list[_Offered] = []
    #: The request as the archive writes it, none or one.
    archived: list[msgspec.Raw] = []
    redactions: dict[str, int] = {}


def encode(mapped: Mapped, redactor: Redactor) -> bytes:
    """The body of the record that holds what one request was mapped to; ``redactor`` masks what was offered."""
    body = _Body(
        frames={table: _packed(frame) for table, frame in mapped.frames.items() if frame.height},
        offered=[
            _Offered(told.project, [_masked(skill, redactor) for skill in told.offers.skills], told.offers.candidates)
            for told in mapped.offered
        ],
        archived=[msgspec.Raw(request.encoded) for request in mapped.archived],
        redactions=dict(mapped.redactions),
    )
    return msgspec.msgpack.encode(body)


def restore(record: Record, work: Work, redactor: Redactor) -> Mapped:
    """What the record's request was mapped to, without what the tables have already and what was forgotten since."""
    header, forgotten = record.header, work.forgotten
    body = msgspec.msgpack.decode(record.body, type=_Body)
    mapped = Mapped(redactions=Counter(body.redactions))
    for table, packed in body.frames.items():
        if header.seq > work.versions[table]:
            named = pl.lit(source_request(header.seq, header.imported))
            frame = _without(_unpacked(table, packed).with_columns(source_request=named), forgotten, redactor)
            if frame.height:
                mapped.frames[table] = frame
    if header.seq > work.versions[SKILLS]:
        mapped.offered = [
            OfferedIn(header, told.project, Offers(told.skills, told.candidates)) for told in body.offered
        ]
    if work.archive_after is not None and header.seq > work.archive_after:
        for encoded in body.archived:
            request = msgspec.msgpack.decode(encoded, type=ArchivedRequest)
            request.seq = header.seq
            if forgotten:
                kept = [item for item in request.items if not _hides(forgotten, item, header.project, redactor)]
                request.items = kept
            if request.items:
                mapped.archived.append(EncodedRequest.of(request))
    return mapped


def _packed(frame: pl.DataFrame) -> bytes:
    file = BytesIO()
    frame.write_ipc(file)
    return file.getvalue()


def _unpacked(table: str, packed: bytes) -> pl.DataFrame:
    """The rows in the schema of the table, which may have got columns since."""
    return pl.concat([FACT_TABLES[table].to_frame(), pl.read_ipc(BytesIO(packed))], how="diagonal")


def _masked(skill: OfferedSkill, redactor: Redactor) -> OfferedSkill:
    return msgspec.structs.replace(
        skill,
        description=masked_value(skill.description, redactor) if skill.description else None,
        parameters_schema=masked_value(skill.parameters_schema, redactor) if skill.parameters_schema else None,
    )


def _without(frame: pl.DataFrame, forgotten: Forgotten, redactor: Redactor) -> pl.DataFrame:
    if not forgotten:
        return frame
    marks = frame.select(*_MARKS).with_columns(pl.col("time").dt.epoch("us"))
    return frame.filter(
        pl.Series([not forgotten.hides(row, redactor) for row in marks.iter_rows(named=True)], dtype=pl.Boolean)
    )


def _hides(forgotten: Forgotten, item: ArchivedItem, named: str, redactor: Redactor) -> bool:
    held = item.held
    happened = held.start_ns if isinstance(held, Span) else held.time_ns
    marks: dict[str, Any] = {
        "project": project_of(held, named),
        "session_id": origin_of(held).session_id if isinstance(held, Span) else None,
        "trace_id": held.trace_id,
        "time": happened // 1_000,
        "time_is_receipt": not happened,
    }
    return forgotten.hides(marks, redactor)
