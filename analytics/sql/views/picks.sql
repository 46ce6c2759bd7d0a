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

-- Every pick, with what the registry makes of it.
create table picked_names as
with called as (
    select project, event_id, time, unnest(list_distinct(picks)) as pick from picks
)
select c.project, c.event_id, c.pick, n.skill_id, n.domain
from called c
left join registry_names n
    on n.project = c.project and n.called = c.pick and c.time >= n.valid_from and c.time < n.valid_to;

-- Of a selection with picks: all names of these, those that it listed, and the lowest rank that it listed one at.
create table picked_offers as
with names as (
    select project, event_id, pick, pick as skill_id from picked_names
    union all
    select project, event_id, pick, skill_id from picked_names where skill_id <> pick
),
found as (
    select n.*, list_position(o.listed, n.skill_id) as rank
    from names n
    left join offers o using (project, event_id)
    union all
    select n.*, r.rank from names n join renamed_offers r using (project, event_id, skill_id)
)
select project, event_id,
    list(skill_id) as names,
    list(pick) filter (rank > 0) as listed_picks,
    max(rank) as lowest_rank
from found
group by project, event_id;
