select *, coalesce(registry_skill_id, skill_id) as skill, not ok as hit from calls where ok is not null
