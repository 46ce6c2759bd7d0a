-- What every selection picked: the picks given hold, also none; absent, the distinct skills of its calls in order.
create table picks as
with called as (
    select project, event_id, list(skill_id order by ordinal nulls last, started_at, call_key) as picks
    from (
        select project, selection_id as event_id, skill_id, min(ordinal) as ordinal, min(started_at) as started_at,
            min(call_key) as call_key
        from calls
        -- What a skill calls by itself is no pick of the model.
        where selection_id is not null and parent_call_id is null
        group by project, selection_id, skill_id
    )
    group by project, event_id
)
select b.project, b.event_id, b.time, coalesce(b.picks, c.picks, []) as picks
from selection_base b
left join called c using (project, event_id);

-- Every name of a pick: as called, and the id that the registry gives it.
create table pick_names as
with called as (
    select distinct project, event_id, time, unnest(picks) as pick from picks
)
select *, pick as skill_id from called
union
select c.*, n.skill_id
from called c
join registry_names n
    on n.project = c.project and n.called = c.pick and c.time >= n.valid_from and c.time < n.valid_to
where n.skill_id is not null;
