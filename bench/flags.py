"""Does the nightly job find what is planted in a simulated month, and nothing else?

    python -m bench.flags --seeds 20 [--quiet 10] [--missed]

Each month begins with some days of history, which the first night judges; then it is written day by day, and after
each day its night runs, at 02:30 of the next. With ``--missed`` only the last night of a month runs, which comes to the
same (tests/bench/test_nights.py) in a twentieth of the time. A change of a skill's status, or
of its reason, is a flag; a new skill's daily step of its fraction is none. Everything that `bench.incidents` does not
expect is a false alarm.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from analytics import nightly
from bench.incidents import DAYS, HISTORY, Incident, Truth, planted, quiet
from bench.month import Month
from collector.lake import Lake
from pickwise.settings import Settings

NIGHT = timedelta(hours=2, minutes=30)
#: A flag on a skill that nothing was planted on.
BYSTANDER = "nothing"


class Flag(NamedTuple):
    skill: str
    status: str
    reason: str
    #: As of which it was said.
    day: int


@dataclass
class Tally:
    """Of one kind of incident: how often it was planted, how late it was found, and what was said of it."""

    planted: int = 0
    #: Those of them that a night must find; the others must raise nothing.
    wanted: int = 0
    delays: list[int] = field(default_factory=list)
    true: int = 0
    false: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.planted += other.planted
        self.wanted += other.wanted
        self.delays += other.delays
        self.true += other.true
        self.false += other.false


Tallies = dict[str, Tally]


def live(month: Month, folder: Path, nights: Collection[int], seconds: list[float]) -> Iterator[Flag]:
    """Write the days and run the nights of ``nights``; appends the seconds of each night."""
    lake, said = Lake(folder), dict[str, str]()
    for day in range(month.days):
        month.write_day(lake, day)
        if day not in nights:
            continue
        began = time.perf_counter()
        found = run_night(month, folder, day)
        seconds.append(time.perf_counter() - began)
        yield from flags_of(month, found, said)


def run_night(month: Month, folder: Path, day: int, embedder: str = "words") -> list[dict[str, Any]]:
    """The changes of status that the night after ``day`` records; they need no embeddings."""
    now = month.first_day + timedelta(days=day + 1) + NIGHT
    settings = Settings(data_dir=folder, embedder=embedder)
    result = nightly.run(folder, settings, project=month.project, now=now)
    changes: list[dict[str, Any]] = result["projects"][month.project]["status_changes"]
    return changes


def flags_of(month: Month, changes: Iterable[dict[str, Any]], said: dict[str, str]) -> Iterator[Flag]:
    """The changes that say something new; ``said`` keeps the newest reason of each skill."""
    for change in changes:
        skill, status, reason = change["skill_id"], change["status"], change["reason"]
        if status != change["previous_status"] or reason != said.get(skill):
            yield Flag(skill, status, reason, (datetime.fromisoformat(change["time"]) - month.first_day).days)
        said[skill] = reason


def compare(month: Month, incidents: Sequence[Incident], flags: Iterable[Flag]) -> Tallies:
    """What was found of the planted, by kind of truth; what was not planted, by kind of incident."""
    names = month.skill_names()
    truths = [truth for incident in incidents for truth in incident.truths]
    kinds = {str(names[incident.skill]): incident.kind for incident in incidents}
    tallies: Tallies = defaultdict(Tally)
    for kind in [truth.kind for truth in truths] + [incident.kind for incident in incidents if not incident.truths]:
        tallies[kind].planted += 1
    days: dict[Truth, list[int]] = {truth: [] for truth in truths}
    for flag in flags:
        meant = next((truth for truth in truths if _is_true(truth, str(names[truth.skill]), flag)), None)
        if meant is None:
            told = f"{flag.skill} {flag.status} ({flag.reason}) on day {flag.day} of seed {month.seed}"
            tallies[kinds.get(flag.skill, BYSTANDER)].false.append(told)
        else:
            tallies[meant.kind].true += 1
            days[meant].append(flag.day)
    for truth, found in days.items():
        tallies[truth.kind].wanted += 1
        if found and min(found) <= truth.deadline:
            tallies[truth.kind].delays.append(min(found) - truth.first)
    return tallies


def _is_true(truth: Truth, skill: str, flag: Flag) -> bool:
    is_meant = flag.skill == skill and (flag.status, flag.reason) in truth.flags
    return is_meant and truth.first <= flag.day <= truth.last


def judge(month: Month, incidents: Sequence[Incident], nights: Collection[int], seconds: list[float]) -> Tallies:
    """Live a month in a folder of its own and compare."""
    with tempfile.TemporaryDirectory(prefix="pickwise-flags-") as folder:
        return compare(month, incidents, live(month, Path(folder), nights, seconds))


def merged(months: Iterable[Tallies]) -> Tallies:
    total: Tallies = defaultdict(Tally)
    for tallies in months:
        for kind, tally in tallies.items():
            total[kind].add(tally)
    return total


def report(total: Tallies) -> Iterator[str]:
    """The table, and each false alarm."""
    whole = Tally()
    yield "| planted | times | found | days later (median, most) | true flags | false alarms |"
    yield "|---|---|---|---|---|---|"
    for kind, tally in total.items():
        whole.add(tally)
        found = str(len(tally.delays)) if tally.wanted else "must raise nothing"
        delay = f"{median(tally.delays):g}, {max(tally.delays)}" if tally.delays else ""
        yield f"| {kind} | {tally.planted} | {found} | {delay} | {tally.true} | {len(tally.false)} |"
    said = whole.true + len(whole.false)
    yield ""
    yield f"precision {_share(whole.true, said)}, recall {_share(len(whole.delays), whole.wanted)}"
    yield from (f"- {told}" for told in whole.false)


def _share(part: int, of: int) -> str:
    return f"{part / of:.4f} ({part} of {of})" if of else "none"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.flags", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--quiet", type=int, default=10, help="months in which nothing happens")
    parser.add_argument("--missed", action="store_true", help="run the last night alone")
    given = parser.parse_args(argv)
    nights = [DAYS - 1] if given.missed else range(HISTORY - 1, DAYS)
    seconds: list[float] = []
    months = [(seed, *planted(seed)) for seed in range(given.seeds)]
    total = merged(_told(seed, judge(month, incidents, nights, seconds)) for seed, month, incidents in months)
    print("\n".join(report(total)))
    nothing = merged(_told(seed, judge(quiet(seed), [], nights, seconds)) for seed in range(given.quiet))
    alarms = [told for tally in nothing.values() for told in tally.false]
    print(f"\n{given.quiet} quiet months: {len(alarms)} false alarms", *alarms, sep="\n- ")
    print(f"\n{len(seconds)} nights: median {median(seconds):.2f} s, longest {max(seconds):.2f} s")


def _told(seed: int, tallies: Tallies) -> Tallies:
    false = [told for tally in tallies.values() for told in tally.false]
    print(f"seed {seed}: {len(false)} false alarms", *false, sep="\n  ", file=sys.stderr, flush=True)
    return tallies


if __name__ == "__main__":
    main()
