select m.*, if($judge, corrected_or_judged, corrected) or label_disagrees(picked, j.expected) as hit
from mismatches m
left join (
    select project, event_id, expected from judgements where project = $project and ($judge or not from_judge)
) j using (project, event_id)
-- by skill
select m.*, p.skill_id as skill, p.domain,
    if($judge, corrected_or_judged, corrected) or label_disagrees(picked, j.expected) as hit
from (select *, unnest(picked) as p from mismatches) m
left join (
    select project, event_id, expected from judgements where project = $project and ($judge or not from_judge)
) j using (project, event_id)
