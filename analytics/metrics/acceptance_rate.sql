select *, len(listed_picks) > 0 as hit from selections where n_candidates > 0 and not closing
-- by skill
select *, coalesce(registry_skill_id, skill_id) as skill, picked as hit from candidates where not closing
