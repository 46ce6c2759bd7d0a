-- Runs of equal calls (same skill, same arguments) within a session, in the order of their start.
with ordered as (
    select *, coalesce(args_digest, arguments, '') as said,
        row_number() over (partition by project, session_id order by started_at, call_key) as place
    from calls
    where session_id is not null and project = $project
        and (time >= $start or $start is null) and (time < $end or $end is null)
),
runs as (
    select *, place - row_number() over (
        partition by project, session_id, coalesce(registry_skill_id, skill_id), said order by place
    ) as run
    from ordered
),
lengths as (
    select project, session_id, count(*) as length
    from runs
    where args_digest is not null or arguments is not null
    group by project, session_id, coalesce(registry_skill_id, skill_id), said, run
),
longest as (
    select project, session_id, max(length) as length from lengths group by project, session_id
)
select o.project, o.session_id, min(o.time) as time, max(o.time) as last_time, hour_of(min(o.time)) as hour, arg_min(agent, place) as agent, arg_min(model, place) as model,
    arg_min(environment, place) as environment, arg_min(release, place) as release,
    coalesce(max(l.length), 0) >= 3 as hit
from ordered o
left join longest l using (project, session_id)
group by o.project, o.session_id
