-- The similarities come from the nightly job. A pick is held against the least similar tenth of the picks that repeat
-- nothing, over the 28 days up to the newest pick of the window; fewer than 200 of them are no measure.
with compared as (
    select p.*, coalesce(p.skill_id = p.previous_skill_id, false) as repeats
    from pick_similarities p
    where p.project = $project
),
newest as (
    select max(time) as time from compared
    where (time >= $start or $start is null) and (time < $end or $end is null)
),
lines as (
    select c.embedding_version as version, quantile_cont(c.similarity, 0.1) as tenth
    from compared c, newest n
    where not c.repeats and c.time <= n.time and c.time > n.time - interval 28 days
    group by c.embedding_version
    having count(*) >= 200
)
select s.*, c.skill_id as skill, k.domain,
    c.repeats and c.similarity < l.tenth and coalesce(c.similarity < c.best_unpicked, false) as hit
from compared c
join lines l on l.version = c.embedding_version
join selections s on s.project = c.project and s.event_id = c.event_id
left join skills k
    on k.project = c.project and k.skill_id = c.skill_id and k.authoritative
    and s.time >= k.valid_from and (k.valid_to is null or s.time < k.valid_to)
