select j.*, d.k, recall_at(j.ranks, d.k) as value, j.query as unit
from judgements j, (values (1), (3), (5), (10)) d(k)
where $judge or not j.from_judge
-- by skill
select j.* exclude (expected), u.skill, d.k, coalesce(u.rank <= d.k, false)::double as value, j.query as unit
from judgements j,
    lateral (select unnest(j.expected) as skill, unnest(j.ranks) as rank) u,
    (values (1), (3), (5), (10)) d(k)
where $judge or not j.from_judge
