-- When each name was first offered, as far as segments tell: by a unit that still holds there. Where the first one no
-- longer does, the others are looked at.
create or replace table settled_offers as
with gone as (
    select segment, unit from masks union select segment, unit from touched
),
doubtful as (
    select distinct o.project, o.skill_id
    from segment_offers o
    join gone g on g.segment = o.segment and g.unit in (o.time_unit, o.received_unit)
),
looked_up as (
    select c.project, c.skill_id, s.time, s.received_at
    from (from settled_candidates semi join doubtful using (project, skill_id)) c
    join settled_selections s using (project, event_id)
    where c.unit not in (select unit from touched)
)
select project, skill_id, min(time) as time, min(received_at) as received_at
from (
    select project, skill_id, time, received_at from segment_offers anti join doubtful using (project, skill_id)
    union all
    from looked_up
)
group by project, skill_id;
