-- Runs of equal calls (same skill, same arguments) within a session, in the order of their start.
-- Calls are read three times, each time the columns needed: ten million of them are more than memory holds.
with told as not materialized (
    select project, session_id, time, started_at, call_key, agent, model, environment, release,
        coalesce(registry_skill_id, skill_id) as meant, coalesce(args_digest, arguments) as said
    from calls
    where session_id is not null and project = $project
        and (time >= $start or $start is null) and (time < $end or $end is null)
),
-- Only sessions that say one thing three times may say it in a row: few, so only their calls are put in order. Numbers
-- group faster than texts, and a session too many does no harm.
repeating as (
    select distinct session_id from told
    where said is not null
    group by session_id, hash(project, meant, said)
    having count(*) >= 3
),
ordered as (
    select *, row_number() over (partition by project, session_id order by started_at, call_key) as place
    from told semi join repeating using (session_id)
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
),
sessions as (
    select project, session_id, min(time) as time, max(time) as last_time,
        arg_min(agent, (started_at, call_key)) as agent, arg_min(model, (started_at, call_key)) as model,
        arg_min(environment, (started_at, call_key)) as environment,
        arg_min(release, (started_at, call_key)) as release
    from told
    group by project, session_id
)
select s.*, hour_of(s.time) as hour, coalesce(l.has_looped, false) as hit
from sessions s
left join looped l using (project, session_id)
