"""The way of a request into the archive, and back from it to facts and rows.

Redaction takes away what some rules need: a result that says that a call failed, the argument values behind a digest,
the text that an id is made of. So what the redacted item tells is compared with what the whole one told, and the
columns and rows that it tells otherwise are stored beside it. The same mapping therefore gives the same rows again,
and a mended one is used wherever the redacted item can tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from collector import mapping
from collector.archived import ArchivedItem, ArchivedRequest, Item, RowsByTable
from collector.carried import differences, events_of, is_clean, keyed, known_columns, learn, usual
from collector.facts import CallFact, Facts, Offer
from collector.item_shapes import ItemShapes, kind_of
from collector.mapping.conversation import from_json
from collector.projects import project_of
from collector.read_attributes import layout_of
from collector.redact import Redactor, is_described
from collector.redact_items import ItemRedactor
from collector.row_types import Row
from collector.rows import Ledger, to_rows
from collector.segment import Record
from collector.spans import Span
from pickwise.events import Candidate, Selection
from pickwise.settings import Settings


class Archivist:
    """Turns requests into archived ones and these into rows again, by the rules of one installation."""

    def __init__(self, settings: Settings, redactor: Redactor) -> None:
        self._settings = settings
        self._items = ItemRedactor(redactor)
        self._shapes = ItemShapes()
        self._redactor = _Again(redactor)

    def archived(
        self, record: Record, seen: Sequence[tuple[Item, Facts | None]], made: dict[int, Row]
    ) -> ArchivedRequest | None:
        """The request of a log record, from its items, their facts and the rows that these became.

        None where no mapper reads anything of it.
        """
        arguments = Arguments()
        arguments.note(seen)
        items = self.items(seen, made, arguments)
        header = record.header
        if not items:
            return None
        return ArchivedRequest(header.seq, header.project, header.received_at, items, header.imported)

    def items(
        self, seen: Sequence[tuple[Item, Facts | None]], made: dict[int, Row], arguments: Arguments
    ) -> list[ArchivedItem]:
        """What is kept of some items of a request; ``arguments``: those of all its calls."""
        known = arguments.of
        return [kept for item, facts in seen if (kept := self._item(item, facts, made, known)) is not None]

    def facts(self, request: ArchivedRequest, ledger: Ledger) -> tuple[dict[str, Facts], dict[str, RowsByTable]]:
        """What the mapping of today reads in the request, by project; and the rows of what it can't read any more.

        Columns that are known from the first mapping go to the ledger.
        """
        found: dict[str, Facts] = {}
        lost: dict[str, RowsByTable] = {}
        for item in request.items:
            facts, rows = self._told(item, ledger)
            for offer in facts.offered:
                offer.time = offer.time or request.received_at
            project = project_of(item.held, request.project)
            found.setdefault(project, Facts()).extend(facts)
            for table, row in rows:
                lost.setdefault(project, {}).setdefault(table, []).append(row)
        return found, lost

    def rows(
        self, request: ArchivedRequest, project: str, facts: Facts, ledger: Ledger, source_request: str
    ) -> RowsByTable:
        """The rows of the facts of one project."""
        return to_rows(
            project,
            facts,
            received_at=request.received_at,
            source_request=source_request,
            redactor=self._redactor,
            ledger=ledger,
        )

    # -- into the archive -------------------------------------------------------------------------------------------

    def _item(
        self, item: Item, facts: Facts | None, made: dict[int, Row], arguments: Callable[[str], list[Any]]
    ) -> ArchivedItem | None:
        if not isinstance(item, Span):
            log = self._items.log(item, facts)
            return None if log is None else self._looked_at(ArchivedItem(log=log), facts, made)
        layout = layout_of(item.attributes)
        span = self._items.span(item, facts, arguments, layout)
        if span is None:
            return None
        kept = ArchivedItem(span=span)
        if self._items.has_masked_label:
            return self._looked_at(kept, facts, made)
        kind = kind_of(span, layout, facts)
        if kind is None:
            return self._looked_at(kept, facts, made)
        shape = self._shapes.of(kind)
        if not shape.needs_look():
            if facts is not None:
                kept.carried = usual(facts, made, shape)
        elif shape.is_trusted:
            learn(shape, self._looked_at(kept, facts, made), facts, made)
        else:
            self._looked_at(kept, facts, made)
        return kept

    def _looked_at(self, kept: ArchivedItem, facts: Facts | None, made: dict[int, Row]) -> ArchivedItem:
        """The item with what it tells otherwise, redacted, than was told."""
        told = facts or Facts()
        tells = self._mapped(kept) or Facts()
        kept.carried = list(differences(told, tells, made))
        if told.offered != tells.offered:
            offered = [self._items.offer(skill) for skill in told.offered_skills]
            kept.offered = None if offered == tells.offered_skills else offered
        return kept

    def _mapped(self, item: ArchivedItem) -> Facts | None:
        held = item.held
        return (
            mapping.map_span(held, self._settings) if isinstance(held, Span) else mapping.map_log(held, self._settings)
        )

    # -- and out of it ----------------------------------------------------------------------------------------------

    def _told(self, item: ArchivedItem, ledger: Ledger) -> tuple[Facts, list[tuple[str, Row]]]:
        """What the item tells, mended by what is known of its first mapping; and the rows that it does not tell."""
        tells = self._mapped(item) or Facts()
        carried = {found.event: found for found in item.carried}
        facts = Facts(offered=tells.offered)
        if item.offered is not None:
            facts.offered = [Offer(skill.time, (skill,)) for skill in item.offered]
        for key, event in keyed(tells):
            known = carried.get(key)
            if known is None:
                if not is_clean(event):
                    continue
                ledger.known[id(event)] = {"args_digest": None} if isinstance(event, CallFact) else {}
            elif known.state in ("changed", "lost"):
                columns = ledger.known[id(event)] = known_columns(carried.pop(key))
                if isinstance(event, Selection) and "candidates" in columns:
                    # The observed registry learns from them.
                    event.candidates = msgspec.convert(columns["candidates"], list[Candidate])
            else:
                continue
            events_of(facts, key[0]).append(event)
        whole = [(left.event[0], left.columns) for left in carried.values() if left.state in ("lost", "wrong")]
        return facts, whole


class _Again(Redactor):
    """Redacts what was redacted before: what stands for a value taken out stays as it is."""

    def __init__(self, redactor: Redactor) -> None:
        self.__dict__.update(redactor.__dict__)
        self.counts = Counter()

    def arguments(self, skill_id: str, value: Any) -> str | None:
        kept = super().arguments(skill_id, value)
        if isinstance(value, dict) and kept is not None:
            decoded = msgspec.json.decode(kept)
            decoded |= {name: item for name, item in value.items() if name in decoded and is_described(item)}
            return msgspec.json.encode(decoded).decode()
        return msgspec.json.encode(value).decode() if is_described(value) else kept


class Arguments:
    """Those of the calls of each trace of a request: decoded once an error text asks for them, which few do."""

    def __init__(self) -> None:
        self._noted: dict[str, list[Any]] = {}
        self._decoded: dict[str, list[Any]] = {}

    def note(self, seen: Sequence[tuple[Item, Facts | None]]) -> None:
        for item, facts in seen:
            if facts is not None:
                for call in facts.calls:
                    if call.arguments is not None:
                        self._noted.setdefault(item.trace_id or "", []).append(call.arguments)

    def of(self, trace_id: str) -> list[Any]:
        decoded = self._decoded.setdefault(trace_id, [])
        decoded += map(from_json, self._noted.pop(trace_id, ()))
        return decoded
