-- What every selection offered, by the names as listed; a name that was listed twice has its best rank.
create table offers as
select project, event_id, time, trace_id, session_id, list_transform(candidates, lambda c: c.skill_id) as listed
from selection_base
where len(candidates) > 0;

-- What was listed under another name than the id that the registry gives it.
create table renamed_offers as
with renamed as (
    select * from registry_names where skill_id <> called
),
called as (
    select *, unnest(listed) as called, unnest(range(1, len(listed) + 1)) as rank from offers
)
select c.project, c.event_id, c.time, c.trace_id, c.session_id, c.rank, n.skill_id
from called c
join renamed n on n.project = c.project and n.called = c.called and c.time >= n.valid_from and c.time < n.valid_to
where list_position(c.listed, c.called) = c.rank;
