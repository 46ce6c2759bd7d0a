-- Runs of equal calls (same skill, same arguments) within a session, in the order of their start.
with told as (
    select project, session_id, time, started_at, call_key, agent, model, environment, release,
        coalesce(registry_skill_id, skill_id) as meant, coalesce(args_digest, arguments) as said
    from calls
    where session_id is not null and project = $project
        and (time >= $start or $start is null) and (time < $end or $end is null)
),
-- Only sessions that say one thing three times may say it in a row: few, so only their calls are put in order.
repeating as (
    select distinct project, session_id from told
    where said is not null
    group by project, session_id, meant, said
    having count(*) >= 3
),
ordered as (
    select *, row_number() over (partition by project, session_id order by started_at, call_key) as place
    from told semi join repeating using (project, session_id)
),
runs as (
    select *, place - row_number() over (partition by project, session_id, meant, said order by place) as run
    from ordered
),
looped as (
    select distinct project, session_id, true as has_looped from runs
    where said is not null
    group by project, session_id, meant, said, run
    having count(*) >= 3
)
select t.project, t.session_id, min(t.time) as time, max(t.time) as last_time, hour_of(min(t.time)) as hour,
    arg_min(t.agent, (t.started_at, t.call_key)) as agent, arg_min(t.model, (t.started_at, t.call_key)) as model,
    arg_min(t.environment, (t.started_at, t.call_key)) as environment,
    arg_min(t.release, (t.started_at, t.call_key)) as release,
    coalesce(any_value(l.has_looped), false) as hit
from told t
left join looped l using (project, session_id)
group by t.project, t.session_id
