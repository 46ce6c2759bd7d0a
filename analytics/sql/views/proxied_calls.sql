-- What goes through a proxy tool was chosen when it was proposed: the runs and answers with the call id of a proposal
-- that was given no selection belong to the selection that the newest such proposal found, also those that were given the
-- turn, which is none.
create table proxied_calls as
with proposed as (
    select f.project, coalesce(f.trace_id, f.session_id) as scope, f.call_id, f.time, max(c.selection_id) as selection_id
    from call_facts f
    join call_selections c using (project, event_id)
    where f.role = 'propose' and f.selection_id is null and f.retold_by is null and f.call_id is not null
        and c.selection_id is not null
    group by all
),
told as (
    select f.project, f.event_id, coalesce(f.trace_id, f.session_id) as scope, f.call_id,
        if(f.role = 'answer', f.time - interval 1 microsecond, f.time) as since
    from call_facts f
    anti join selection_base s on s.project = f.project and s.event_id = f.selection_id
    where f.role <> 'propose' and f.call_id is not null
)
select t.project, t.event_id, p.selection_id
from told t
asof join proposed p
    on p.project = t.project and p.scope = t.scope and p.call_id = t.call_id and t.since >= p.time;

update call_selections c
set selection_id = p.selection_id, tier = 2
from proxied_calls p
where p.project = c.project and p.event_id = c.event_id;
