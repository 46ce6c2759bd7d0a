"""Thirty days of selections and calls, written straight into the tables: quickly, and the same for a seed.

An agent asks the same questions again and again, each with a skill that is right for it; retrieval lists some
candidates, the right one mostly near the top, and the agent mostly picks it. The project has a registry, written before
the month and changed in it as ``Entry`` has it; skills fail as their ``Trouble`` has it.

python -m bench.month FOLDER --selections 1000000      fill a data folder
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector.lake import Lake
from collector.skill_changes import SkillChange, to_rows
from collector.tables import CANDIDATE, TIME

FIRST_DAY = datetime(2026, 3, 1, tzinfo=UTC)
_KINDS = np.array(["tool_error", "timeout", "rate_limited", "invalid_arguments", "exception"])
_KIND_SHARES = (0.4, 0.2, 0.1, 0.2, 0.1)
_AGENTS = np.array(["assistant", "billing", "research"])
_MODELS = np.array(["gpt-4o", "claude-sonnet-4-5"])
_STRATEGIES = np.array(["hybrid", "dense", "sparse"])
_TURNS_A_SESSION = 4
#: From one turn of a session to the next, where there are enough; in one of so many stretches a quarter of that.
_SECONDS_A_TURN = 180
_QUICK_EVERY = 100


@dataclass(frozen=True)
class Trouble:
    """How one skill fares on the days ``first`` <= day < ``last`` of the month (0 is the first)."""

    skill: int
    first: int
    last: int
    #: Share of its calls that fail.
    failing: float = 0.05
    #: The kind of those failures; empty: the usual mixture.
    kind: str = ""
    #: Times its usual calls; of a skill that came later: times those of the mean skill.
    volume: float = 1.0


@dataclass(frozen=True)
class Entry:
    """A write of the registry as a day of the month begins: another version of a skill, or a new one.

    Skills of the first registry are numbered below ``Month.skills``, new ones from there on.
    """

    skill: int
    day: int
    version: str = "1"


@dataclass(frozen=True)
class Month:
    """A month to write. ``selections`` and the calls of ``calls_a_selection`` are spread evenly over ``days``."""

    selections: int
    days: int = 30
    skills: int = 500
    candidates: int = 8
    calls_a_selection: float = 1.2
    failing: float = 0.05
    questions: int = 20_000
    #: Exponent of Zipf's law: the larger, the more of all selections ask the same few questions.
    repetition: float = 1.3
    domains: int = 5
    seed: int = 0
    project: str = "default"
    first_day: datetime = FIRST_DAY
    troubles: Sequence[Trouble] = field(default_factory=tuple)
    entries: Sequence[Entry] = field(default_factory=tuple)

    def write(self, folder: Path) -> None:
        """Into the tables of a data folder, a commit a day."""
        lake = Lake(folder)
        for day in range(self.days):
            self.write_day(lake, day)

    def write_day(self, lake: Lake, day: int) -> None:
        """What that day brought: writes of the registry, selections, calls."""
        transaction = ("wal", day + 1)
        registry = self.registry(day)
        if registry.height:
            lake.append("skills", registry, transaction)
        selections, calls = self.frames(day)
        lake.append("selections", selections, transaction)
        lake.append("calls", calls, transaction)

    def frames(self, day: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Selections and calls of a day."""
        first = self.selections * day // self.days
        count = self.selections * (day + 1) // self.days - first
        return _Day(self, day, first, count).frames()

    def registry(self, day: int) -> pl.DataFrame:
        """Rows of table ``skills`` that a day begins with; the first day's hold from the beginning of time."""
        begin = self.first_day + timedelta(days=day)
        at = int(begin.timestamp()) * 1_000_000
        changes = [self._change(entry, at) for entry in self.entries if entry.day == day]
        if day == 0:
            changes += [self._change(Entry(skill, 0), 0) for skill in range(self.skills)]
        return to_rows(
            changes, project=self.project, source="declared", seq=day, received_at=at * 1_000, source_request=""
        )

    def skill_names(self) -> NDArray[np.object_]:
        """Of all skills by their number, also those that come later."""
        count = max([self.skills, *(entry.skill + 1 for entry in self.entries)])
        return np.array([f"server{i % 25}/tool_{i}" for i in range(count)], dtype=object)

    def shares(self) -> NDArray[np.float64]:
        """How much of all selections asks for each skill of the first registry, from a large sample."""
        asked = _asked(self, np.random.default_rng(self.seed), 200_000)
        return np.bincount(_right_skills(self)[asked], minlength=self.skills) / len(asked)

    def _change(self, entry: Entry, at: int) -> SkillChange:
        name = str(self.skill_names()[entry.skill])
        domain = f"domain{entry.skill % self.domains}"
        described = f"Answers questions about {name}, one of the tools of {domain}."
        content = {"skill_id": name, "name": name, "description": described, "domain": domain, "version": entry.version}
        return SkillChange(skill_id=name, op="upsert", time=at, entry=content)


class _Day:
    def __init__(self, month: Month, day: int, first: int, count: int) -> None:
        self._month = month
        self._day = day
        self._first = first
        self._count = count
        self._random = np.random.default_rng((month.seed, day))
        self._begin = int((month.first_day + timedelta(days=day)).timestamp() * 1e6)

    def frames(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        month, random, count = self._month, self._random, self._count
        names = month.skill_names()
        popular = _asked(month, random, count)
        right = self._crowded(_right_skills(month)[popular])
        listed, rank = self._lists(right)
        at = self._begin + np.sort(random.integers(0, 86_400_000_000 - 60_000_000, count))
        number = self._first + np.arange(count)
        ids = pl.Series(number).cast(pl.String)
        sessions = self._sessions(number)
        session = pl.Series(sessions).cast(pl.String)
        accepted = (random.random(count) < 0.9) & (rank < month.candidates)
        other = listed[np.arange(count), random.integers(0, month.candidates, count)]
        picked = self._wanted(np.where(accepted, right, other), right)
        has_pick = random.random(count) > 0.04
        common: dict[str, Any] = {
            "project": month.project,
            "trace_id": "t" + ids,
            "session_id": "s" + session,
            "agent": _AGENTS[sessions % len(_AGENTS)],
            "model": _MODELS[sessions % len(_MODELS)],
            "environment": "production",
            "release": "1",
        }
        selections = _frame(
            {
                **common,
                "event_id": "e" + ids,
                "time": at,
                "query": "question " + pl.Series(popular).cast(pl.String) + " about " + pl.Series(names[right]),
                "language": np.where(popular % 5 == 0, "zh", "en"),
                "candidates": self._candidates(names, listed),
                "ranked": True,
                "strategy": _STRATEGIES[popular % len(_STRATEGIES)],
                "fallback": random.random(count) < 0.01,
                "weights_version": f"w{self._day}",
                "embedding_version": "use-multilingual-v3",
                "menu_tokens": random.integers(200, 2_000, count),
                "stage_ms": self._stages(),
            }
        )
        return selections, self._calls(common, at, picked, has_pick, names, number)

    def _sessions(self, number: NDArray[np.int64]) -> NDArray[np.int64]:
        """The session of each turn. So many go on at once that the turns of one are minutes apart, in some less."""
        usual = max(1, 4 * round(self._count / 86_400 * _SECONDS_A_TURN / 4))
        block, inside = np.divmod(number, usual * _TURNS_A_SESSION)
        at_once = np.where(block % _QUICK_EVERY == 0, max(1, usual // 4), usual)
        session: NDArray[np.int64] = block * usual + inside // (at_once * _TURNS_A_SESSION) * at_once + inside % at_once
        return session

    def _crowded(self, right: NDArray[np.int64]) -> NDArray[np.int64]:
        """The skills asked for, where one of them is asked for more or less than usual."""
        for trouble in self._troubles():
            is_new = trouble.skill >= self._month.skills
            usual = 1 / self._month.skills if is_new else self._month.shares()[trouble.skill]
            extra = (trouble.volume - (not is_new)) * usual
            if extra > 0:
                right = np.where(self._random.random(len(right)) < extra, trouble.skill, right)
            elif extra < 0:
                gone = (right == trouble.skill) & (self._random.random(len(right)) >= trouble.volume)
                right = np.where(gone, (right + 1) % self._month.skills, right)
        return right

    def _wanted(self, picked: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
        """The picks, where nobody takes a skill by mistake that is unused."""
        unused = [trouble.skill for trouble in self._troubles() if trouble.volume == 0]
        return np.where(np.isin(picked, unused), right, picked)

    def _troubles(self) -> list[Trouble]:
        return [trouble for trouble in self._month.troubles if trouble.first <= self._day < trouble.last]

    def _lists(self, right: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Distinct candidates by rank, and the rank (from 0) of the right one; beyond the list: it is missing."""
        month, random = self._month, self._random
        steps = np.cumsum(random.integers(1, month.skills // month.candidates, (self._count, month.candidates)), axis=1)
        listed = (right[:, None] + steps) % month.skills
        rank = np.minimum(random.geometric(0.55, self._count) - 1, month.candidates)
        inside = rank < month.candidates
        listed[np.flatnonzero(inside), rank[inside]] = right[inside]
        return listed, rank

    def _candidates(self, names: NDArray[np.object_], listed: NDArray[np.int64]) -> pl.Series:
        count, width = listed.shape
        scores = np.sort(self._random.random((count, width)).round(4), axis=1)[:, ::-1].ravel()
        absent = {name: pa.nulls(count * width, pa.string()) for name in ("source", "team")}
        values = {
            "skill_id": pa.DictionaryArray.from_arrays(pa.array(listed.ravel()), pa.array(names)).cast(pa.string()),
            "score": pa.array(scores),
            **{name: pa.nulls(count * width, pa.float64()) for name in ("bm25", "dense", "rerank", "propensity")},
            **absent,
        }
        order = [name.name for name in CANDIDATE.fields]
        struct = pa.StructArray.from_arrays([values[name] for name in order], order)
        offsets = pa.array(np.arange(0, count * width + 1, width, dtype=np.int64))
        return pl.Series(pa.LargeListArray.from_arrays(offsets, struct))

    def _stages(self) -> pl.Series:
        random, count = self._random, self._count
        parts = {
            name: pl.Series(random.lognormal(mean, 0.5, count))
            for name, mean in (("embed", 2.0), ("sparse", 1.0), ("dense", 1.6), ("rerank", 3.0), ("total", 3.8))
        }
        return pl.DataFrame(parts).to_struct("stage_ms")

    def _calls(
        self,
        common: Mapping[str, Any],
        at: NDArray[np.int64],
        picked: NDArray[np.int64],
        has_pick: NDArray[np.bool_],
        names: NDArray[np.object_],
        number: NDArray[np.int64],
    ) -> pl.DataFrame:
        """A turn calls what it picked, some of them again; one in five calls knows only its trace."""
        random = self._random
        repeats = random.random(self._count) < self._month.calls_a_selection / 0.96 - 1
        turn = np.concatenate([np.flatnonzero(has_pick), np.flatnonzero(has_pick & repeats)])
        count = len(turn)
        ordinal = np.concatenate([np.zeros(int(has_pick.sum())), np.ones(int((has_pick & repeats).sum()))])
        skill = picked[turn]
        failing = np.full(len(names), self._month.failing)
        kinds = np.where(np.ones(count, bool), random.choice(_KINDS, count, p=_KIND_SHARES), "")
        for trouble in self._troubles():
            failing[trouble.skill] = trouble.failing
            if trouble.kind:
                kinds = np.where(skill == trouble.skill, trouble.kind, kinds)
        failed = random.random(count) < failing[skill]
        called = names[skill]
        invented = random.random(count) < 0.003
        called = np.where(invented, called + "_v9", called)
        ids = "c" + pl.Series(number[turn]).cast(pl.String) + "-" + pl.Series(ordinal.astype(np.int64)).cast(pl.String)
        frame = _frame(
            {
                **{
                    name: value.gather(turn) if isinstance(value, pl.Series) else value
                    for name, value in common.items()
                    if name not in ("agent", "model")
                },
                "event_id": ids,
                "call_id": ids,
                "time": at[turn] + 1_000_000 + (ordinal * 5_000_000).astype(np.int64),
                "agent": np.asarray(common["agent"])[turn],
                "model": np.asarray(common["model"])[turn],
                "selection_id": "e" + pl.Series(number[turn]).cast(pl.String),
                "skill_id": called,
                "ok": ~failed,
                "error_kind": pl.Series(kinds.astype(object), dtype=pl.String),
                "latency_ms": random.lognormal(4.5, 0.8, count),
                "args_keys": [["query"]],
            }
        )
        of_trace = pl.Series(random.random(count) < 0.2)
        return frame.with_columns(
            error_kind=pl.when(pl.Series(failed)).then("error_kind"),
            selection_id=pl.when(~of_trace).then("selection_id"),
        )


def _right_skills(month: Month) -> NDArray[np.int64]:
    """The skill of each question."""
    return np.random.default_rng(month.seed).integers(0, month.skills, month.questions)


def _asked(month: Month, random: np.random.Generator, count: int) -> NDArray[np.int64]:
    """So many questions, a few of them most of the time."""
    return (random.zipf(month.repetition, count) - 1) % month.questions


def _frame(columns: Mapping[str, Any]) -> pl.DataFrame:
    scalars = {name: value for name, value in columns.items() if isinstance(value, str | bool | list)}
    arrays = {name: _series(name, value) for name, value in columns.items() if name not in scalars}
    times = pl.col("time").cast(pl.Int64).cast(pl.Datetime("us")).dt.replace_time_zone("UTC").cast(TIME)
    return (
        pl.DataFrame(arrays)
        .with_columns(
            pl.lit(value[0] if isinstance(value, list) else value).alias(name) for name, value in scalars.items()
        )
        .with_columns(time=times)
        .with_columns(
            date=pl.col("time").dt.date(),
            received_at=pl.col("time") + timedelta(seconds=2),
            time_is_receipt=False,
            span_id=None,
            fact=pl.col("event_id"),
            source_request=pl.lit(""),
            mapping_version=pl.lit("bench"),
        )
    )


def _series(name: str, values: Iterable[Any]) -> pl.Series:
    """polars takes no numpy arrays of objects for texts."""
    is_text = isinstance(values, np.ndarray) and values.dtype.kind in "OU"
    return pl.Series(name, values.tolist() if is_text else values)  # type: ignore[attr-defined]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--selections", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    began = time.perf_counter()
    Month(arguments.selections, seed=arguments.seed).write(arguments.folder)
    print(f"{arguments.selections:,} selections in {time.perf_counter() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
