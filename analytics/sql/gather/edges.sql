-- Pairs of scopes that a fact ties together, with its day; a scope alone is tied to itself.
-- Facts of calls that know no selection, trace or session are one call by their id alone (see `views/call_keys.sql`).
create or replace table edges as
with told as (
    select project, date, trace_id, session_id, event_id, null as selection_id, null as lone_call_id from fact_selections
    union all
    select project, date, trace_id, session_id, event_id, selection_id, lone_call(trace_id, session_id, selection_id, call_id)
    from fact_calls
    union all
    select project, date, trace_id, session_id, event_id, selection_id, null from fact_feedback
),
tied as (
    select project, date,
        scope_of('event', project, event_id) as a,
        unnest([
            scope_of('event', project, event_id),
            scope_of('trace', project, trace_id),
            scope_of('session', project, session_id),
            scope_of('event', project, selection_id),
            scope_of('call', project, lone_call_id)
        ]) as b
    from told
),
-- A verdict on a call id alone is one on the call that it finds (see `views/feedback.sql`).
verdicts as (
    select project, event_id, call_id, trace_id, session_id, coalesce(time, received_at) as time
    from fact_feedback
    where call_id is not null and selection_id is null
),
by_call as (
    select v.project, null::date as date, scope_of('event', v.project, v.event_id) as a, scope_of('event', c.project, c.event_id) as b
    from verdicts v
    join fact_calls c on c.project = v.project and c.call_id = v.call_id
    qualify row_number() over (
        partition by v.project, v.event_id
        order by coalesce(c.trace_id = v.trace_id, false) desc, coalesce(c.session_id = v.session_id, false) desc,
            coalesce(c.time, c.received_at) <= v.time desc, coalesce(c.time, c.received_at) desc, c.event_id
    ) = 1
)
from tied where b is not null
union all
from by_call;
