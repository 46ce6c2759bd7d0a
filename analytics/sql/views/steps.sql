-- The steps that stand for turns: those of traces that tell of no turn, where something was offered or called. What was
-- offered the run around them tells, else the runs of their trace, if they agree; that run also tells who was asked what.
create table steps as
with told as (
    select project, event_id, min(trace_id) as trace_id, min(parent_span_id) as parent_span_id,
        fold_list(candidates) as candidates
    from fact_selections
    where role = 'step'
    group by project, event_id
),
alone as (
    from told
    anti join (
        select project, trace_id from fact_selections where coalesce(role, 'turn') = 'turn'
    ) using (project, trace_id)
),
runs_told as (
    from fact_selections semi join alone using (project, trace_id)
    where role = 'run'
),
around as (
    select project, trace_id, span_id, fold_list(candidates) as candidates, fold(query) as query, fold(agent) as agent
    from runs_told
    where span_id is not null
    group by project, trace_id, span_id
),
agreed as (
    select project, trace_id, min(candidates) as candidates
    from runs_told
    where len(candidates) > 0
    group by project, trace_id
    having count(distinct candidates) = 1
),
filled as (
    select l.project, l.event_id, a.query, a.agent,
        case
            when len(l.candidates) > 0 then l.candidates
            when len(a.candidates) > 0 then a.candidates
            else coalesce(g.candidates, [])
        end as candidates
    from alone l
    left join around a
        on a.project = l.project and a.trace_id = l.trace_id and a.span_id = l.parent_span_id
    left join agreed g on g.project = l.project and g.trace_id = l.trace_id
)
from filled f
where len(f.candidates) > 0
    or exists (select 1 from fact_calls c where c.project = f.project and c.selection_id = f.event_id);

update fact_selections f
set role = null, candidates = s.candidates, query = coalesce(f.query, s.query), agent = coalesce(f.agent, s.agent)
from steps s
where f.role = 'step' and s.project = f.project and s.event_id = f.event_id;

update fact_selections set role = 'run' where role = 'step';
