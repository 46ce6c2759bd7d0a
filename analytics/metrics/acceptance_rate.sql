select *, len(listed_picks) > 0 as hit from selections where n_candidates > 0 and not closing
-- by skill
-- Apart by whether the registry knows them, so that both are grouped by a column as it is stored, not by a text made
-- of each row.
select *, registry_skill_id as skill, picked as hit from candidates where not closing and registry_skill_id is not null
union all by name
select *, skill_id as skill, picked as hit from candidates where not closing and registry_skill_id is null
