select *, top_skill_id as skill, top_domain as domain, top_skipped as hit from mismatches
