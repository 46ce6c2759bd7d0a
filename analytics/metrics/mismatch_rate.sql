-- Few selections have a label, so what was picked is only looked at for these.
with disagreeing as (
    select m.project, m.event_id, true as disagrees
    from mismatches m
    join (
        select project, event_id, expected from judgements where project = $project and ($judge or not from_judge)
    ) j using (project, event_id)
    where label_disagrees(m.picked, j.expected)
)
select m.*, top_skill_id as skill, top_domain as domain,
    top_skipped or off_list or if($judge, corrected_or_judged, corrected) or coalesce(d.disagrees, false) as hit
from mismatches m
left join disagreeing d using (project, event_id)
