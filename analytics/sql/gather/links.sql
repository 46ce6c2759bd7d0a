-- The scopes of every unit, by which new facts find it, and the days of its facts. Ids of events only where no span gave
-- them: else they are found by their trace.
create or replace table linked as
with told as (
    select project, date, span_id, trace_id, session_id, event_id, null as selection_id from fact_selections
    union all
    select project, date, span_id, trace_id, session_id, event_id, selection_id from fact_calls
    union all
    select project, date, span_id, trace_id, session_id, event_id, selection_id from fact_feedback
),
scoped as (
    select project, date, scope_of('event', project, event_id) as event,
        unnest([
            scope_of('trace', project, trace_id),
            scope_of('session', project, session_id),
            if(trace_id is null or span_id is null, scope_of('event', project, event_id), null),
            if(trace_id is null or span_id is null, scope_of('event', project, selection_id), null)
        ]) as scope
    from told
)
select s.scope, u.unit, s.project, min(s.date) as since, max(s.date) as until
from scoped s
join scope_units u on u.scope = s.event
where s.scope is not null
group by all;
