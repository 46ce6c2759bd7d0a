-- Agent runs that were told as one: which of them are selections, and what they know of the rest of their trace.
-- `place` orders the runs of a trace: an earlier one first, around another before it, the better informed last.
create table runs as
select *,
    row_number() over (
        partition by project, scope order by time, ended_at desc, known, event_id
    ) as place
from (
    select project, event_id, trace_id, coalesce(trace_id, event_id) as scope, span_id, parent_span_id, time,
        greatest(ended_at, time) as ended_at, session_id, agent, model, environment, release, query,
        if(query is null, null, truncated) as truncated,
        coalesce(list_distinct(list_transform(candidates, lambda c: c.skill_id)), []) as skill_ids,
        len(list_filter([query, session_id, agent, model, environment, release], lambda x: x is not null)) as known
    from selection_base
    where role = 'run'
);

-- Where a trace tells of no turn, its runs that offer something are the selections. A run gives way to the runs within
-- it that offer a skill of its own, unless a call of the trace names a skill that only such runs offered.
create table run_selections as
with recursive offering as (
    from runs
    anti join (
        select project, trace_id from selection_base semi join runs using (project, trace_id) where role is null
    ) using (project, trace_id)
    where len(skill_ids) > 0
),
spans as (
    select project, scope, span_id, arg_min(parent_span_id, place) as parent_span_id, min(time) as time,
        max(ended_at) as ended_at
    from runs
    where span_id is not null
    group by all
),
-- Every run with itself and the runs around it, by their spans.
climbed as (
    select project, scope, event_id, coalesce(span_id, event_id) as outer_id, parent_span_id as outer_parent_id,
        time as outer_time, ended_at as outer_ended_at, 0 as steps
    from runs
    union all
    select c.project, c.scope, c.event_id, s.span_id, s.parent_span_id, s.time, s.ended_at, c.steps + 1
    from climbed c
    join spans s on s.project = c.project and s.scope = c.scope and s.span_id = c.outer_parent_id
    where c.steps < 16 -- spans of a broken export may be each other's parents
),
outermost as (
    from climbed
    qualify row_number() over (partition by project, scope, event_id order by steps desc) = 1
),
offers as (
    select *, row_number() over (partition by project, scope, skill_id order by place) as turn
    from (
        select o.* exclude (skill_ids), unnest(o.skill_ids) as skill_id, t.outer_id, t.outer_parent_id,
            t.outer_time, t.outer_ended_at
        from offering o
        join outermost t using (project, scope, event_id)
    )
),
-- Runs that start after another that offers the same skill. Only so many are looked at: all pairs would be too many.
pairs as (
    select o.*, unnest(range(o.turn + 1, o.turn + 33)) as later_turn from offers o
),
-- Which spans are between two runs is not known, so time tells: within are those that begin and end while the other
-- goes on, but not its siblings, nor the same agent's answer to another query.
giving_way as (
    select distinct a.project, a.scope, a.event_id
    from pairs a
    join offers b on b.project = a.project and b.scope = a.scope and b.skill_id = a.skill_id and b.turn = a.later_turn
    left join climbed c
        on c.project = a.project and c.scope = a.scope and c.event_id = b.event_id and c.steps > 0
        and c.outer_id = coalesce(a.span_id, a.event_id)
    where c.event_id is not null or (
        b.outer_time >= a.time and b.outer_ended_at <= coalesce(a.ended_at, a.time)
        and a.outer_id is distinct from b.outer_id
        and (a.outer_parent_id = b.outer_parent_id) is not true
        and (a.agent = b.agent and a.query <> b.query) is not true
    )
),
staying as (
    from offers anti join giving_way using (project, scope, event_id)
),
missed as (
    select project, scope, event_id
    from offers o
    semi join giving_way using (project, scope, event_id)
    semi join fact_calls c on c.project = o.project and c.trace_id = o.scope and c.skill_id = o.skill_id
    anti join staying s on s.project = o.project and s.scope = o.scope and s.skill_id = o.skill_id
    qualify row_number() over (partition by project, scope, skill_id order by place desc) = 1
)
select project, event_id from staying
union
select project, event_id from missed;

insert into asides
select project, event_id from selection_base where role = 'retrieval'
union all
select project, event_id from runs anti join run_selections using (project, event_id);

-- What the runs of a trace know at a time: of each thing the newest at or before it, else the oldest after it.
create table run_knowledge as
with informed as (
    select project, trace_id, time, place,
        coalesce(
            last_value(columns(['session_id', 'agent', 'model', 'environment', 'release', 'query', 'truncated'])
                ignore nulls) over past,
            first_value(columns(['session_id', 'agent', 'model', 'environment', 'release', 'query', 'truncated'])
                ignore nulls) over future
        )
    from runs
    where trace_id is not null
    window
        past as (partition by project, trace_id order by place rows between unbounded preceding and current row),
        future as (partition by project, trace_id order by place rows between current row and unbounded following)
),
newest as (
    from informed
    qualify row_number() over (partition by project, trace_id, time order by place desc) = 1
)
select * exclude (place) replace (
    if(row_number() over (partition by project, trace_id order by time) = 1, '-infinity', time) as time
)
from newest;
