-- Spells in which an instance of a discovery router was degraded. Probes tell that it still lives; silent for five
-- minutes it is lost, and the spell ends.
create view degraded_spells as
with heard as (
    select *,
        last_value(if(state = 'probe', null, state) ignore nulls) over (
            past rows between unbounded preceding and current row
        ) as mode,
        lead(time) over past as next_time
    from routes
    window past as (partition by project, instance order by time, event_id)
),
stretches as (
    select *,
        least(coalesce(next_time, now()), time + interval 5 minutes) as until,
        coalesce(lag(mode) over past = 'degraded' and time - lag(time) over past <= interval 5 minutes, false) as goes_on
    from heard
    window past as (partition by project, instance order by time, event_id)
),
numbered as (
    select *, sum(if(mode = 'degraded' and not goes_on, 1, 0)) over (
        partition by project, instance order by time, event_id
    ) as spell
    from stretches
)
select project, instance, spell, min(time) as time, max(until) as ended_at,
    arg_min(reason, time) as reason, arg_min(agent, time) as agent, arg_min(environment, time) as environment,
    arg_min(release, time) as release
from numbered
where mode = 'degraded'
group by project, instance, spell;
