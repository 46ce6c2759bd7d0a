"""Each kind of incident of a simulated month is found by the nightly job, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bench.flags import BYSTANDER, Flag, Tallies, compare, flags_of, live, report
from bench.incidents import Incident, planted, quiet
from bench.month import Month

SEED = 1
MONTH, INCIDENTS = planted(SEED)
TRUTHS = [truth for incident in INCIDENTS for truth in incident.truths]


def lived(month: Month, folder: Path) -> list[Flag]:
    """All flags of a month whose nights were all missed but the last."""
    return list(live(month, folder, [month.days - 1], []))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Tallies:
    return compare(MONTH, INCIDENTS, lived(MONTH, tmp_path_factory.mktemp("month")))


@pytest.mark.parametrize("kind", list(dict.fromkeys(truth.kind for truth in TRUTHS)))
def test_what_was_planted_is_found_in_time(found: Tallies, kind: str) -> None:
    assert len(found[kind].delays) == found[kind].wanted == sum(truth.kind == kind for truth in TRUTHS)


@pytest.mark.parametrize("kind", [incident.kind for incident in INCIDENTS] + [BYSTANDER])
def test_nothing_else_is_said(found: Tallies, kind: str) -> None:
    assert found[kind].false == []


def test_a_quiet_month_raises_nothing(tmp_path: Path) -> None:
    assert lived(quiet(SEED), tmp_path) == []


def of_kind(kind: str) -> Incident:
    return next(incident for incident in INCIDENTS if incident.kind == kind)


def counted(flags: Sequence[Flag]) -> tuple[int, int, int]:
    """Of a slow death: found in time, true flags and false ones."""
    incident = of_kind("slow death")
    tally = compare(MONTH, [incident], flags)[incident.kind]
    return len(tally.delays), tally.true, len(tally.false)


def test_flags_are_told_apart_by_skill_reason_and_day() -> None:
    (truth,) = of_kind("slow death").truths
    name = str(MONTH.skill_names()[truth.skill])

    def flag(day: int, reason: str = "failing") -> Flag:
        return Flag(name, "degraded", reason, day)

    assert counted([flag(truth.first)]) == (1, 1, 0)
    assert counted([flag(truth.deadline)]) == (1, 1, 0)
    assert counted([flag(truth.deadline + 1)]) == (0, 1, 0)
    assert counted([flag(truth.first - 1)]) == (0, 0, 1)
    assert counted([flag(truth.first, "surge")]) == (0, 0, 1)
    assert counted([]) == (0, 0, 0)
    other = Flag("somebody", "degraded", "failing", truth.first)
    assert len(compare(MONTH, INCIDENTS, [other])[BYSTANDER].false) == 1


def test_the_report_counts_what_was_missed_and_what_was_false() -> None:
    truth = TRUTHS[0]
    flags = [Flag(str(MONTH.skill_names()[truth.skill]), *min(truth.flags), truth.first)]
    flags.append(Flag("somebody", "degraded", "failing", 3))
    text = "\n".join(report(compare(MONTH, INCIDENTS, flags)))
    assert f"precision 0.5000 (1 of 2), recall {1 / len(TRUTHS):.4f} (1 of {len(TRUTHS)})" in text
    assert "- somebody degraded (failing) on day 3 of seed 1" in text
    assert "| unused | 1 | must raise nothing |  | 0 | 0 |" in text


def test_a_step_of_the_fraction_is_no_flag() -> None:
    def change(reason: str, day: int, before: str = "observation", status: str = "observation") -> dict[str, str]:
        at = MONTH.first_day.replace(day=day + 1).isoformat()
        return {"skill_id": "a", "status": status, "previous_status": before, "reason": reason, "time": at}

    changes = [change("new", 1), change("new", 2), change("held", 3), change("observed", 7, status="active")]
    said: dict[str, str] = {}
    flags = list(flags_of(MONTH, changes, said))
    assert [(flag.reason, flag.day) for flag in flags] == [("new", 1), ("held", 3), ("observed", 7)]
    assert said == {"a": "observed"}


_Make = Callable[[int], Month]


@pytest.mark.parametrize("make", [quiet, lambda seed: planted(seed)[0]])
def test_a_seed_is_one_month(make: _Make) -> None:
    assert make(5) == make(5)
    assert make(5) != make(6)
