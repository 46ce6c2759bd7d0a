select *, off_list as hit from mismatches
-- by skill
-- Where every pick was listed, none of them need be looked for.
select m.* exclude (p), p.skill_id as skill, p.domain, false as hit
from (select *, unnest(picked) as p from mismatches where not off_list) m
union all by name
select m.* exclude (p), p.skill_id as skill, p.domain,
    not exists (
        select 1 from candidates c
        where c.project = m.project and c.event_id = m.event_id
            and (c.skill_id = p.skill_id or c.registry_skill_id = p.skill_id)
    ) as hit
from (select *, unnest(picked) as p from mismatches where off_list) m
