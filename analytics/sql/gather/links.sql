-- The scopes of every unit, by which new facts find it and its own are found again, and the days of its facts.
create or replace table linked as
with told as (
    select project, date, trace_id, session_id, event_id, null as selection_id, null as lone_call_id
    from fact_selections
    union all
    select project, date, trace_id, session_id, event_id, selection_id,
        lone_call(trace_id, session_id, selection_id, call_id)
    from fact_calls
    union all
    select project, date, trace_id, session_id, event_id, selection_id, null from fact_feedback
),
scoped as (
    select project, date, scope_of('event', project, event_id) as event,
        unnest([
            scope_of('trace', project, trace_id),
            scope_of('session', project, session_id),
            scope_of('event', project, event_id),
            scope_of('event', project, selection_id),
            scope_of('call', project, lone_call_id)
        ]) as scope
    from told
)
select s.scope, u.unit, s.project, min(s.date) as since, max(s.date) as until
from scoped s
join scope_units u on u.scope = s.event
where s.scope is not null
group by all;
