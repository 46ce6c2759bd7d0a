"""Whatever a recorded SDK sent, the jobs that learn from it run to their end, and the ranker answers."""

from __future__ import annotations

from pathlib import Path

import msgspec

from analytics import nightly
from analytics.tables import Tables
from pickwise.settings import Settings
from pickwise.skills import Skill
from ranker import train, weights
from ranker.explain import explain
from ranker.weights import WeightsStore
from tests.end_to_end.recordings import names, project_of, requests_of, take


def test_the_jobs_run_to_their_end_on_what_sdks_sent(shared: Path, tmp_path: Path) -> None:
    # One that offers its skills late, and some of the others: each job folds the tables anew for each project.
    recorded = [name for number, name in enumerate(names(shared)) if number % 8 == 0 or name.startswith("crewai")]
    take(tmp_path, ((project_of(name), request) for name in recorded for request in requests_of(shared, name)))
    settings, projects = Settings(data_dir=tmp_path), sorted(map(project_of, recorded))
    entries = Tables(tmp_path).connect().execute("select project, skill_id, entry from skills").fetchall()
    for project, skill_id, entry in entries:
        assert msgspec.json.decode(entry, type=Skill, strict=False).skill_id == skill_id, project
    # Job after job, as a night does: each project would else wait for the tables to be folded anew.
    assert sorted(nightly.run(tmp_path, settings)["projects"]) == projects
    for project in projects:
        document = weights.refresh(tmp_path, settings, project)
        assert document.skills.keys() <= {skill_id for of, skill_id, _ in entries if of == project}, project
    for project in projects:
        served = WeightsStore(tmp_path).get(project, None)
        assert len(explain(tmp_path, settings, project, served)) == len(served["skills"]), project
    for project in projects:
        assert train.train(tmp_path, settings, project=project)["decision"] == "refused", project  # too little of all
