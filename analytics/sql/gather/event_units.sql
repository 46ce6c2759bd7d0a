-- The unit of every gathered fact; its chunk: so many facts of whole units, by time.
create or replace table event_units as
with told as (
    select project, event_id, coalesce(time, received_at) as time from fact_selections
    union all
    select project, event_id, coalesce(time, received_at) from fact_calls
    union all
    select project, event_id, coalesce(time, received_at) from fact_feedback
),
events as (
    select t.project, t.event_id, min(t.time) as time, count(*) as facts, any_value(u.unit) as unit
    from told t
    join scope_units u on u.scope = scope_of('event', t.project, t.event_id)
    group by t.project, t.event_id
),
units as (
    select unit, (sum(sum(facts)) over (order by min(time), unit) - sum(facts)) // $chunk_facts as chunk
    from events
    group by unit
)
select project, event_id, unit, chunk::bigint as chunk, facts from events join units using (unit);
