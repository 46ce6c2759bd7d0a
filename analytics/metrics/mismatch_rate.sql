select m.*, top_skill_id as skill, top_domain as domain,
    top_skipped or off_list or if($judge, corrected_or_judged, corrected) or label_disagrees(picked, j.expected) as hit
from mismatches m
left join (
    select project, event_id, expected from judgements where project = $project and ($judge or not from_judge)
) j using (project, event_id)
