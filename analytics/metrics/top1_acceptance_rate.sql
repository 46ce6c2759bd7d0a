select c.*, coalesce(c.registry_skill_id, c.skill_id) as skill, c.picked as hit
from candidates c
semi join (from selections where ranked and len(listed_picks) > 0) s using (project, event_id)
where c.rank = 1
