-- The selection of every call fact: given; else the one that names its call id; else the newest that offered its
-- skill; else the newest. Within the trace first, then within the session. `tier` says how it was found (1 = given).
-- A run retells its calls as of its start: where no selection was before it, the oldest after it takes their place.
create table call_selections as
-- A call goes on where it was invoked: its later phases look from the time of their `invoke`.
with invoked as (
    select distinct project, coalesce(trace_id, session_id) as scope, call_id, time
    from call_facts
    where phase = 'invoke' and call_id is not null
),
-- A log record that quotes an answer lies inside its own turn, so it looks from where that began.
quoting as (
    select c.project, c.event_id, min(b.time) as time
    from fact_calls c
    join fact_selections s on s.project = c.project and s.trace_id = c.trace_id and s.span_id = c.span_id
    join selection_base b on b.project = s.project and b.event_id = s.event_id
    where c.role = 'answer'
    group by c.project, c.event_id
),
lost as (
    select f.project, f.event_id, f.role, f.call_id, f.trace_id, f.session_id, f.skill_id, f.registry_skill_id,
        f.retold_by,
        case
            -- It was quoted by a later turn.
            when f.role = 'answer' then least(f.time, q.time) - interval 1 microsecond
            when f.phase <> 'invoke' then coalesce(i.time, f.time)
            else f.time
        end as since
    from call_facts f
    asof left join invoked i
        on i.project = f.project and i.scope = coalesce(f.trace_id, f.session_id) and i.call_id = f.call_id
        and f.time >= i.time
    left join quoting q on q.project = f.project and q.event_id = f.event_id
    where f.selection_id is null
),
naming as (
    select project, scope, call_id, time, max(selection_id) as selection_id
    from (
        select f.project, f.call_id, f.selection_id, coalesce(s.time, f.time) as time,
            unnest(['trace ' || coalesce(s.trace_id, f.trace_id), 'session ' || coalesce(s.session_id, f.session_id)])
                as scope
        from (from call_facts semi join lost using (project, call_id)) f
        left join selection_base s on s.project = f.project and s.event_id = f.selection_id
        where f.selection_id is not null
    )
    where scope is not null
    group by project, scope, call_id, time
),
named as (
    select l.project, l.event_id, 2 as tier, n.selection_id, n.time
    from lost l
    asof join naming n
        on n.project = l.project and n.call_id = l.call_id
        and n.scope = coalesce('trace ' || l.trace_id, 'session ' || l.session_id)
        and l.since >= n.time
),
named_after as (
    select l.project, l.event_id, 3 as tier, n.selection_id, n.time
    from lost l
    asof join naming n
        on n.project = l.project and n.call_id = l.call_id
        and n.scope = coalesce('trace ' || l.trace_id, 'session ' || l.session_id)
        and l.since < n.time
),
unnamed as (
    from lost anti join (from named union all from named_after) using (project, event_id)
),
called as (
    select project, event_id, trace_id, session_id, since, retold_by,
        unnest(list_distinct([skill_id, registry_skill_id])) as skill_id
    from unnamed
),
trace_names as (
    select project, trace_id, time, event_id, unnest(listed) as skill_id
    from offers semi join unnamed using (project, trace_id)
    union all
    select project, trace_id, time, event_id, skill_id from renamed_offers semi join unnamed using (project, trace_id)
),
trace_offers as (
    select project, trace_id, skill_id, time, max(event_id) as selection_id
    from trace_names semi join called using (project, trace_id, skill_id)
    group by all
),
by_trace as (
    select c.project, c.event_id, 4 as tier, o.selection_id, o.time from called c asof join trace_offers o
        on o.project = c.project and o.trace_id = c.trace_id and o.skill_id = c.skill_id and c.since >= o.time
    union all
    select c.project, c.event_id, 5, o.selection_id, o.time
    from (from called where retold_by is not null) c asof join trace_offers o
        on o.project = c.project and o.trace_id = c.trace_id and o.skill_id = c.skill_id and c.since < o.time
),
-- Who found nothing in its trace looks on.
unoffered as (
    from unnamed anti join by_trace using (project, event_id)
),
called_elsewhere as (
    from called semi join unoffered using (project, event_id)
),
session_names as (
    select project, session_id, time, event_id, unnest(listed) as skill_id
    from offers semi join unoffered using (project, session_id)
    union all
    select project, session_id, time, event_id, skill_id
    from renamed_offers semi join unoffered using (project, session_id)
),
session_offers as (
    select project, session_id, skill_id, time, max(event_id) as selection_id
    from session_names semi join called_elsewhere using (project, session_id, skill_id)
    group by all
),
trace_selections as (
    select project, trace_id, time, max(event_id) as selection_id
    from selection_base semi join unoffered using (project, trace_id)
    group by all
),
session_selections as (
    select project, session_id, time, max(event_id) as selection_id
    from selection_base semi join unoffered using (project, session_id)
    group by all
),
found as (
    from named
    union all
    from named_after
    union all
    from by_trace
    union all
    select c.project, c.event_id, 6, o.selection_id, o.time from called_elsewhere c asof join session_offers o
        on o.project = c.project and o.session_id = c.session_id and o.skill_id = c.skill_id and c.since >= o.time
    union all
    select l.project, l.event_id, 7, s.selection_id, s.time from unoffered l asof join trace_selections s
        on s.project = l.project and s.trace_id = l.trace_id and l.since >= s.time
    union all
    select l.project, l.event_id, 8, s.selection_id, s.time
    from (from unoffered where retold_by is not null) l asof join trace_selections s
        on s.project = l.project and s.trace_id = l.trace_id and l.since < s.time
    union all
    select l.project, l.event_id, 9, s.selection_id, s.time from unoffered l asof join session_selections s
        on s.project = l.project and s.session_id = l.session_id and l.since >= s.time
),
best as (
    from found
    qualify row_number() over (partition by project, event_id order by tier, time desc, selection_id desc) = 1
)
select f.project, f.event_id, coalesce(f.selection_id, b.selection_id) as selection_id,
    if(f.selection_id is not null, 1, coalesce(b.tier, 10)) as tier,
    b.time as selection_time
from call_facts f
left join best b on b.project = f.project and b.event_id = f.event_id;
