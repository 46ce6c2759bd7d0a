-- Turns without a menu in a trace where no turn has one: frameworks may tell it of the whole run only. A turn within
-- such runs was offered what they offer, if they agree.
update selection_base b set candidates = m.candidates, is_menu = len(m.candidates) < 200
from (
    select project, trace_id, min(candidates) as candidates, min(time) as begun, max(ended_at) as ended
    from selection_base
    where role = 'run' and trace_id is not null and len(candidates) > 0
    group by project, trace_id
    having count(distinct list_transform(candidates, lambda c: c.skill_id)) = 1
) m
anti join (
    select project, trace_id from selection_base where role is null and len(candidates) > 0
) t on t.project = m.project and t.trace_id = m.trace_id
where b.role is null and not b.ranked and b.project = m.project and b.trace_id = m.trace_id
    and b.time between m.begun and m.ended;
