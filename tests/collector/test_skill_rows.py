"""Rows of the registry: declared as they are, observed with the secrets in their texts masked."""

from __future__ import annotations

import json

from collector.redact import Redactor
from collector.skill_changes import SkillChange
from collector.skill_rows import observed_rows
from pickwise.settings import Settings

TEXT = "write to bob@example.com with key sk-abcdef0123456789"
MASKED = "write to [email] with key [api_key]"


def test_secrets_in_observed_definitions_are_masked_and_the_fact_stays() -> None:
    entry = {
        "skill_id": "mail",
        "name": "mail",
        "description": TEXT,
        "parameters_schema": {"type": "object", "properties": {"to": {"type": "string", "examples": [TEXT, 1]}}},
    }
    change = SkillChange(skill_id="mail", op="upsert", time=1, entry=entry)
    bare = SkillChange(skill_id="bare", op="upsert", time=1, entry={"skill_id": "bare"})
    rows = observed_rows(
        [change, bare], project="p", seq=1, received_at=1, source="1", redactor=Redactor(Settings(), b"k" * 32)
    )
    assert rows["description"].to_list() == [MASKED, None]
    assert json.loads(rows["entry"][0]) == json.loads(json.dumps(entry).replace(TEXT, MASKED))
    # A definition is known again by what was offered, not by what is kept of it.
    assert rows["fact"].to_list() == [change.fact, bare.fact]
