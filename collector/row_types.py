"""The rows of the fact tables as they are made: one struct a table, and what all rows of a request share."""

from __future__ import annotations

from collections.abc import ItemsView
from typing import Any, NamedTuple

import msgspec

from collector.tables import FACT_TABLES

Row = dict[str, Any]
#: Columns that are not hashed, beside those of ``Receipt``: the hash itself, and the time, which may be the receipt's.
_OF_EACH = ("fact", "time")
#: Made of ``time`` once rows are a frame.
DATE = "date"


class Receipt(NamedTuple):
    """How the rows of one request came: columns that are the same in all of them."""

    received_at: int
    source_request: str
    mapping_version: str


class MadeRow(msgspec.Struct, gc=False):
    """A row as it is made, without its receipt: a struct is made, encoded and taken apart in half the time of a dict.

    Its columns are in the order of their names, as they are hashed, and then those that are not hashed: unset until
    then, so that no encoder sees them. What it holds can be read by name, as in a dict.
    """

    def __getitem__(self, column: str) -> Any:
        return getattr(self, column)

    def __contains__(self, column: str) -> bool:
        return column in self.__struct_fields__

    def items(self) -> ItemsView[str, Any]:
        return self.to_dict().items()

    def to_dict(self) -> Row:
        return msgspec.structs.asdict(self)


def _row_type(table: str) -> Any:
    hashed = sorted(set(FACT_TABLES[table].names()).difference(_OF_EACH, Receipt._fields, [DATE]))
    columns: list[Any] = [*hashed, *((name, Any, msgspec.UNSET) for name in _OF_EACH)]
    return msgspec.defstruct(table, columns, bases=(MadeRow,), gc=False)


SelectionRow, CallRow, FeedbackRow, RouteRow = map(_row_type, ("selections", "calls", "feedback", "routes"))
ROW_TYPES: dict[str, type[MadeRow]] = {row.__name__: row for row in (SelectionRow, CallRow, FeedbackRow, RouteRow)}
