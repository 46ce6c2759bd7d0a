-- A router tool's run is no call, nor are the spans within it that name the tool but tell neither arguments nor an id (an
-- MCP client's).
create table search_spans as
with recursive nameless as (
    from fact_calls
    semi join (select project, trace_id from fact_calls where role = 'search') using (project, trace_id)
    where role = 'run' and args_digest is null and call_id is null
),
within as (
    select project, trace_id, span_id, skill_id as tool from fact_calls where role = 'search'
    union
    select w.project, w.trace_id, n.span_id, w.tool
    from within w
    join nameless n on n.project = w.project and n.trace_id = w.trace_id and n.parent_span_id = w.span_id
    where ends_with(w.tool, n.skill_id)
)
from within;

delete from fact_calls c using search_spans s
where s.project = c.project and s.trace_id = c.trace_id and s.span_id = c.span_id
    and (c.role = 'search' or (c.role = 'run' and c.args_digest is null and c.call_id is null));

delete from fact_calls where role = 'search';

-- A router tool's run whose span doesn't know its call's id is one with the search of its trace and query that does: the
-- run around it, else the first prompt that quotes it. Without any, spans within each other are one search.
create table searches as
with loose as (
    select project, trace_id, query, event_id, min(time) as time,
        coalesce(max(ended_at), min(time)) as ended_at
    from fact_selections
    where role = 'search' and trace_id is not null and query is not null
    group by all
),
known as (
    select f.project, f.trace_id, f.query, f.event_id, min(f.time) as time,
        max(f.time + to_microseconds((f.stage_ms.total * 1000)::bigint)) as ended_at
    from fact_selections f
    semi join loose using (project, trace_id, query)
    where f.role is null and coalesce(f.strategy <> 'llm_direct', true)
    group by all
),
found as (
    select l.project, l.event_id, k.event_id as search_id,
        case when l.time between k.time and k.ended_at then 0 when l.time <= k.time then 1 else 2 end as tier,
        abs(epoch_us(l.time) - epoch_us(k.time)) as distance
    from loose l join known k using (project, trace_id, query)
    union all
    select l.project, l.event_id, o.event_id, 3, epoch_us(o.time)
    from loose l join loose o using (project, trace_id, query)
    where l.time between o.time and o.ended_at
)
select project, event_id, arg_min(search_id, (tier, distance, search_id)) as search_id
from found
group by project, event_id;

update fact_selections f
set event_id = s.search_id
from searches s
where f.role = 'search' and s.project = f.project and s.event_id = f.event_id;

update fact_selections set role = null where role = 'search';
