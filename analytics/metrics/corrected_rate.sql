select *, if($judge, corrected_or_judged, corrected) as hit from mismatches
-- by skill
select m.*, p.skill_id as skill, p.domain, if($judge, corrected_or_judged, corrected) as hit
from (select *, unnest(picked) as p from mismatches) m
