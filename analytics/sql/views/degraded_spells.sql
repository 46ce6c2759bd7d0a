-- Spells in which an instance of a discovery router was degraded, as known at a moment. Probes tell that it still lives;
-- silent for more than five minutes it is lost, and the spell ends. `ending`: `recovered`, `lost`, or null while it goes on.
create macro degraded_spells_at(moment) as table
with heard as (
    select *,
        last_value(if(state = 'probe', null, state) ignore nulls) over (
            past rows between unbounded preceding and current row
        ) as mode,
        lead(time) over past as next_time
    from routes
    where time < moment
    window past as (partition by project, instance order by time, event_id)
),
stretches as (
    select *,
        least(coalesce(next_time, moment), time + interval 5 minutes) as until,
        coalesce(next_time, moment) - time > interval 5 minutes as is_lost,
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
    case when arg_max(is_lost, (time, event_id)) then 'lost' when arg_max(next_time is not null, (time, event_id))
        then 'recovered' end as ending,
    arg_min(reason, time) as reason, arg_min(agent, time) as agent, arg_min(environment, time) as environment,
    arg_min(release, time) as release
from numbered
where mode = 'degraded'
group by project, instance, spell;

create view degraded_spells as from degraded_spells_at(now());
