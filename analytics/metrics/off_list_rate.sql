select *, off_list as hit from mismatches
-- by skill
select m.*, p.skill_id as skill, p.domain,
    not exists (
        select 1 from candidates c
        where c.project = m.project and c.event_id = m.event_id
            and (c.skill_id = p.skill_id or c.registry_skill_id = p.skill_id)
    ) as hit
from (select *, unnest(picked) as p from mismatches) m
