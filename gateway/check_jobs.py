"""What the doctor learns of the jobs: whether their alert rules can be read, and which of them failed last."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from analytics.rules import RuleError, load_rules
from gateway.check import Check
from gateway.faults import Fault, last_faults
from pickwise.settings import Settings

#: So many failed jobs are named.
_SHOWN = 3


def rules_check(settings: Settings) -> Check:
    try:
        rules = load_rules(settings.alert_rules)
    except RuleError as error:
        mend = "correct that file, or the setting alert_rules (PICKWISE_ALERT_RULES); the jobs do not start with it"
        return Check("alert rules", "bad", f"alert_rules: {error}", mend)
    return Check("alert rules", "ok", f"{len(rules)} of {settings.alert_rules or 'the shipped file'}")


def jobs_checks(settings: Settings) -> Iterator[Check]:
    """Nothing to say of a folder where no job failed."""
    faults = last_faults(settings.data_dir)
    if faults:
        more = f" and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        finding = f"failed the last time: {', '.join(map(_told, faults[:_SHOWN]))}{more}"
        mend = f"see {settings.data_dir / 'logs' / 'jobs.log'} and report it; each is tried again when it is due"
        yield Check("jobs", "bad", finding, mend)


def _told(fault: Fault) -> str:
    return f"{fault.job} of {fault.project} ({fault.error}, {datetime.fromtimestamp(fault.at, UTC):%Y-%m-%d %H:%M} UTC)"
