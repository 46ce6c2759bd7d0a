-- Which facts are one call: the key of every fact, but of those that a run retells. An answer may have none.
create table call_keys as
with placed as (
    select f.project, f.event_id, f.role, f.trace_id, f.span_id, f.session_id, f.time, f.args_digest, f.phase,
        -- An answer's place is one among the calls of a selection that it knows.
        if(f.role = 'answer' and l.tier > 1, null, f.ordinal) as ordinal,
        coalesce(f.registry_skill_id, f.skill_id) as skill_id,
        if(f.role = 'run', coalesce(f.call_id, s.call_id), f.call_id) as call_id,
        if(f.role = 'run' and s.is_nested, s.outer_span_id, null) as outer_span_id,
        l.selection_id, l.tier, l.selection_time
    from call_facts f
    join call_selections l using (project, event_id)
    left join call_spans s on s.project = f.project and s.trace_id = f.trace_id and s.span_id = f.span_id
    where f.retold_by is null
),
-- All spans of one call belong to the selection that the best informed of them found.
settled as (
    select * exclude (selection_id, tier, selection_time),
        if(
            outer_span_id is null,
            selection_id,
            first_value(selection_id) over (
                partition by project, trace_id, outer_span_id, call_id
                order by if(outer_span_id is null, null, tier), selection_time desc nulls last, selection_id
            )
        ) as selection_id
    from placed
),
keyed as (
    select s.*,
        case
            when call_id is not null
            then concat_ws(chr(31), 'id', coalesce('s ' || selection_id, 't ' || trace_id, 'c ' || session_id, '-'), call_id)
            when role in ('propose', 'answer') and selection_id is not null and ordinal is not null
            then concat_ws(chr(31), 'ordinal', selection_id, ordinal)
            when role = 'answer' then null
            when outer_span_id is not null then concat_ws(chr(31), 'span', trace_id, outer_span_id)
            when role = 'run' and phase is not null and trace_id is not null and span_id is not null
            then concat_ws(chr(31), 'phases', trace_id, span_id, skill_id)
            else concat_ws(chr(31), 'event', event_id)
        end as own_key,
        -- When the steps of a run were it doesn't tell, so its calls are looked for among those of all.
        if(step_id is null, selection_id, concat_ws(chr(31), 'steps', trace_id)) as choice
    from settled s
    left join (select project as step_project, event_id as step_id from steps)
        on step_project = s.project and step_id = s.selection_id
),
-- A run without an id is the proposal of its selection and skill that no run with an id has taken.
anonymous as (
    select project, choice, own_key, min(skill_id) as skill_id, min(args_digest) as args_digest,
        min(time) as time, min(ordinal) as ordinal
    from keyed
    where role = 'run' and call_id is null and choice is not null
    group by project, choice, own_key
),
taken as (
    select distinct project, own_key from keyed where role = 'run' and call_id is not null
),
untaken as (
    select project, choice, own_key, min(skill_id) as skill_id, min(args_digest) as args_digest,
        min(time) as time, min(ordinal) as ordinal
    from keyed anti join taken using (project, own_key)
    where role = 'propose' and choice is not null
    group by project, choice, own_key
),
alike as (
    select a.project, a.own_key, u.own_key as proposal_key
    from (
        select *, row_number() over (
            partition by project, choice, skill_id, args_digest order by time, ordinal, own_key
        ) as place
        from anonymous where args_digest is not null
    ) a
    join (
        select *, row_number() over (
            partition by project, choice, skill_id, args_digest order by time, ordinal, own_key
        ) as place
        from untaken where args_digest is not null
    ) u using (project, choice, skill_id, args_digest, place)
),
in_order as (
    select a.project, a.own_key, u.own_key as proposal_key
    from (
        select *, row_number() over (partition by project, choice, skill_id order by time, ordinal, own_key) as place
        from anonymous anti join alike using (project, own_key)
    ) a
    join (
        select *, row_number() over (partition by project, choice, skill_id order by time, ordinal, own_key) as place
        from untaken t anti join alike k on k.project = t.project and k.proposal_key = t.own_key
    ) u using (project, choice, skill_id, place)
),
paired as (
    from alike union all from in_order
),
-- An answer that knows neither id nor tool is that to the only call of its turn that nothing ran.
refused as (
    select project, choice, min(own_key) as own_key
    from untaken u
    anti join paired p on p.project = u.project and p.proposal_key = u.own_key
    group by project, choice
    having count(*) = 1
)
select k.project, k.event_id, k.role, k.selection_id, coalesce(p.proposal_key, k.own_key, r.own_key) as key
from keyed k
left join paired p on p.project = k.project and p.own_key = k.own_key
left join refused r on r.project = k.project and r.choice = k.choice and k.own_key is null and k.skill_id = ''
where coalesce(k.own_key, r.own_key) is not null;
