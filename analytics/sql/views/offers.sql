-- One row a skill that a selection offered, at its best rank where it was listed twice.
create table listed as
select project, event_id, time, trace_id, session_id, candidate, candidate.skill_id as skill_id, rank
from (
    select project, event_id, time, trace_id, session_id, skill_ids,
        unnest(candidates) as candidate, unnest(range(1, len(candidates) + 1)) as rank
    from (select *, list_transform(candidates, lambda c: c.skill_id) as skill_ids from selection_base)
)
where list_position(skill_ids, candidate.skill_id) = rank;

-- Every name under which it was offered: as listed, and the id that the registry gives it.
create table offers as
with renamed as (
    select * from registry_names where skill_id <> called
)
select project, event_id, time, trace_id, session_id, rank, skill_id from listed
union all
select l.project, l.event_id, l.time, l.trace_id, l.session_id, l.rank, n.skill_id
from listed l
join renamed n on n.project = l.project and n.called = l.skill_id and l.time >= n.valid_from and l.time < n.valid_to;
