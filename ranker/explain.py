"""Why each skill has the weights that it has."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from analytics.tables import Tables
from pickwise.settings import Settings
from ranker import weights
from ranker.log import facts_of, feed, frame, read_connection
from ranker.state import State

_REASONS = "SELECT skill_id, arg_max(reason, time) FROM skill_status WHERE project = $project GROUP BY skill_id"


def explain(
    data_dir: Path, settings: Settings, project: str, document: Mapping[str, Any], now: float | None = None
) -> list[dict[str, Any]]:
    """One row a skill of the document: its weights, and the counts, decay, prior and interval behind its success.

    ``calls`` and ``ok`` are plain counts without caller faults, ``n_effective`` what decay left of them; ``prior`` is
    the domain's rate and ``kappa`` the calls it counts for; ``low`` and ``high`` a 95 % interval; ``picks`` and
    ``impressions`` are decayed, from ranked selections; ``status_reason`` is why the status last changed, None where it
    never did.
    """
    moment = time.time() if now is None else now
    connection = Tables(data_dir).connect()
    try:
        log = read_connection(connection, settings, project)
        reasons = dict(frame(connection, _REASONS, {"project": project}).iter_rows())
    finally:
        connection.close()
    factors = weights.position_factors(data_dir, project)
    state = feed(facts_of(log, None), State(0, factors))
    skills = document["skills"]
    rows = state.rows(skills)
    fared = state.success.at(rows, moment)
    low, high = fared.interval
    found = []
    for index, (skill_id, entry) in enumerate(skills.items()):
        row = int(rows[index])
        ok, calls = state.success.counts(row)
        picks, impressions = state.heat.exposure(row, moment)
        found.append(
            {
                "skill_id": skill_id,
                "status": entry["status"],
                "status_reason": reasons.get(skill_id),
                "rollout_fraction": entry["rollout_fraction"],
                "heat": entry["heat"],
                "picks": picks,
                "impressions": impressions,
                "success": entry["success"],
                "low": float(low[index]),
                "high": float(high[index]),
                "ok": ok,
                "calls": calls,
                "n_effective": float(fared.n_effective[index]),
                "prior": float(fared.prior[index]),
                "kappa": float(fared.kappa[index]),
            }
        )
    return sorted(found, key=lambda item: (np.inf if item["calls"] == 0 else item["success"], item["skill_id"]))
