"""Rows of the registry: observed with the secrets in their texts masked."""

from __future__ import annotations

import json

from collector.facts import OfferedSkill
from collector.observed import ObservedSkills, Offers
from collector.redact import Redactor
from collector.skill_changes import entry_fact
from collector.skill_rows import observed_rows
from pickwise.settings import Settings

TEXT = "write to bob@example.com with key sk-abcdef0123456789"
MASKED = "write to [email] with key [api_key]"


def test_secrets_in_observed_definitions_are_masked_before_anything_is_made_of_them() -> None:
    schema = {"type": "object", "properties": {"to": {"type": "string", "examples": [TEXT, 1]}}}
    skill = OfferedSkill(skill_id="mail", name="mail", description=TEXT, parameters_schema=schema, time=1_000)
    redactor = Redactor(Settings(), b"k" * 32)
    known = ObservedSkills(redactor)
    changes = known.learn("p", Offers([skill], {"bare": 1_000}))
    rows = observed_rows(changes, project="p", seq=1, received_at=1, source="1")
    assert rows["description"].to_list() == [MASKED, None]
    entry = {"skill_id": "mail", "name": "mail", "description": TEXT, "parameters_schema": schema}
    masked = json.loads(json.dumps(entry).replace(TEXT, MASKED))
    assert json.loads(rows["entry"][0]) == masked
    # Nor does the hash tell anything of a secret, and what a replay reads in the archive, masked, has the same one.
    assert rows["fact"].to_list() == [entry_fact("upsert", masked), entry_fact("upsert", {"skill_id": "bare"})]
    again = OfferedSkill(**(masked | {"time": 2_000}))
    assert known.learn("p", Offers([again], {})) == []
    assert ObservedSkills.of_rows(rows, redactor).learn("p", Offers([skill], {})) == []
