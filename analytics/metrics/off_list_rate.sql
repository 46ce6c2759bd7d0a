select *, off_list as hit from mismatches
-- by skill
select *, p.skill_id as skill, p.domain, not p.listed as hit from (select *, unnest(picked) as p from mismatches)
