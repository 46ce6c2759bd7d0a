-- The calls that a run retells, although it is no selection: each is the call of its trace with its id; else one of its
-- skill with equal arguments; else one of its skill, by order. What nothing else tells of is a call of its own.
insert into call_keys by name
with retold as (
    select f.project, f.event_id, f.trace_id, concat_ws(' ', f.trace_id, coalesce(f.span_id, f.retold_by)) as teller,
        f.call_id, f.call_id is null as is_anonymous, f.args_digest, f.time, f.ordinal, l.selection_id,
        coalesce(f.registry_skill_id, f.skill_id) as skill_id
    from call_facts f
    join call_selections l using (project, event_id)
    where f.retold_by is not null
),
known as (
    select f.project, f.trace_id, k.key, min(k.selection_id) as selection_id, min(f.call_id) as call_id,
        min(coalesce(f.registry_skill_id, f.skill_id)) as skill_id, min(f.args_digest) as args_digest,
        coalesce(min(f.time) filter (f.role = 'run'), min(f.time)) as time, min(f.ordinal) as ordinal
    from call_facts f
    semi join retold r on r.project = f.project and r.trace_id = f.trace_id
    join call_keys k on k.project = f.project and k.event_id = f.event_id
    where f.role <> 'answer'
    group by f.project, f.trace_id, k.key
),
-- The calls that each run may mean: those that began while it went on. Where its end is not known: all after its start.
extents as (
    select project, concat_ws(' ', trace_id, coalesce(span_id, event_id)) as teller, min(time) as time,
        max(ended_at) as ended_at
    from runs
    group by all
),
tellers as (
    select t.project, t.trace_id, t.teller, coalesce(e.time, '-infinity') as time,
        if(e.ended_at > e.time, e.ended_at, 'infinity') as ended_at
    from (select distinct project, trace_id, teller from retold) t
    left join extents e using (project, teller)
),
meant as (
    select t.teller, k.*
    from tellers t
    join known k on k.project = t.project and k.trace_id = t.trace_id and k.time between t.time and t.ended_at
),
by_id as (
    select r.project, r.event_id, r.teller, m.key
    from (
        select *, row_number() over (partition by project, teller, call_id order by time, ordinal, event_id) as nth
        from retold where call_id is not null
    ) r
    join (
        select *, row_number() over (partition by project, teller, call_id order by time, ordinal, key) as nth
        from meant where call_id is not null
    ) m using (project, teller, call_id, nth)
),
-- Clocks differ, but an id is an id.
by_id_elsewhere as (
    select r.project, r.event_id, r.teller, k.key
    from (
        select *, row_number() over (partition by project, teller, call_id order by time, ordinal, event_id) as nth
        from retold anti join by_id using (project, event_id)
        where call_id is not null
    ) r
    join (
        select *, row_number() over (partition by project, trace_id, call_id order by time, ordinal, key) as nth
        from known where call_id is not null
    ) k using (project, trace_id, call_id, nth)
),
identified as (
    from by_id union all from by_id_elsewhere
),
-- Ids that differ tell two calls apart, so a call with an id may only be one without.
nameless as (
    select *, unnest(if(call_id is null, [true, false], [true])) as is_anonymous from meant
),
by_arguments as (
    select r.project, r.event_id, r.teller, m.key
    from (
        select *, row_number() over (
            partition by project, teller, is_anonymous, skill_id, args_digest order by time, ordinal, event_id
        ) as nth
        from retold anti join identified using (project, event_id)
        where args_digest is not null
    ) r
    join (
        select *, row_number() over (
            partition by project, teller, is_anonymous, skill_id, args_digest
            order by time, ordinal, key
        ) as nth
        from nameless anti join identified using (project, teller, key)
        where args_digest is not null
    ) m using (project, teller, is_anonymous, skill_id, args_digest, nth)
),
matched as (
    from identified union all from by_arguments
),
by_order as (
    select r.project, r.event_id, r.teller, m.key
    from (
        select *, row_number() over (
            partition by project, teller, is_anonymous, skill_id order by time, ordinal, event_id
        ) as nth
        from retold anti join matched using (project, event_id)
    ) r
    join (
        select *, row_number() over (
            partition by project, teller, is_anonymous, skill_id order by time, ordinal, key
        ) as nth
        from nameless anti join matched using (project, teller, key)
    ) m using (project, teller, is_anonymous, skill_id, nth)
),
found as (
    select f.project, f.event_id, k.key, k.selection_id
    from (from matched union all from by_order) f
    join retold r using (project, event_id)
    join known k on k.project = f.project and k.trace_id = r.trace_id and k.key = f.key
),
-- Runs around each other retell the same calls.
lone as (
    select *,
        coalesce('s ' || selection_id, 't ' || trace_id, '-') as scope,
        row_number() over (partition by project, teller, skill_id order by time, ordinal, event_id) as nth
    from retold anti join found using (project, event_id)
)
select project, event_id, 'propose' as role, selection_id, key from found
union all
select project, event_id, 'propose', selection_id,
    if(
        call_id is null,
        concat_ws(chr(31), 'retold', scope, skill_id, nth),
        concat_ws(chr(31), 'id', scope, call_id)
    )
from lone;
