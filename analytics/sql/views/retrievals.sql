-- What the searches of a trace found. `place` orders them by when their results were known; around another after it.
create table retrievals as
select *,
    row_number() over (partition by project, trace_id order by ended_at, time desc, is_rerank, event_id) as place
from (
    select project, trace_id, event_id, time, greatest(ended_at, time) as ended_at, query, strategy, stage_ms,
        embedding_version, candidates,
        list_distinct(list_transform(candidates, lambda c: c.skill_id)) as skill_ids,
        coalesce(strategy = 'rerank', false) or stage_ms.rerank is not null
            or len(list_filter(candidates, lambda c: c.rerank is not null)) > 0 as is_rerank
    from selection_base
    where role = 'retrieval' and trace_id is not null and len(candidates) > 0
);

create table retrieved as
select * exclude (candidate), candidate.skill_id as skill_id, candidate
from (
    select project, trace_id, event_id, ended_at, place, unnest(candidates) as candidate,
        unnest(range(1, len(candidates) + 1)) as rank
    from retrievals
)
qualify row_number() over (partition by project, event_id, candidate.skill_id order by rank) = 1;

-- The selections that a search may have ranked, with the time until which it had to be done: a run's own count too.
create table unranked as
select project, trace_id, event_id, time, if(role = 'run', greatest(ended_at, time), time) as until, candidates
from selection_base
semi join retrievals using (project, trace_id)
anti join asides using (project, event_id)
where not ranked and not randomized;

-- The retrieval of each: the newest before it that names a skill that it offered; without an offer, one that it called.
create table rankings as
with wanted as (
    select project, trace_id, event_id, until, unnest(candidates).skill_id as skill_id from unranked
    union
    select u.project, u.trace_id, u.event_id, u.until, c.skill_id
    from unranked u
    join fact_calls c on c.project = u.project and c.selection_id = u.event_id and c.role = 'propose'
    where len(u.candidates) = 0
),
named as (
    select project, trace_id, skill_id, ended_at, max(place) as place
    from retrieved semi join wanted using (project, trace_id, skill_id)
    group by all
)
select w.project, w.trace_id, w.event_id, max(n.place) as place
from wanted w
asof join named n
    on n.project = w.project and n.trace_id = w.trace_id and n.skill_id = w.skill_id and w.until >= n.ended_at
group by all;

-- What each of these searches consisted of: the retrieval itself (`nth` = 0), those within it, and, where it is a
-- rerank, what it ranked: the newest of each strategy since the turn and the rerank before it, else the newest of all.
-- Parts of a search have a skill in common. Only so many before it are looked at, as a trace may have any number.
create table search_parts as
with leaders as (
    select r.*, coalesce(t.time, '-infinity') as since
    from (from retrievals semi join rankings using (project, trace_id, place)) r
    asof left join (
        select project, trace_id, time from selection_base semi join rankings using (project, trace_id)
        where role is null
    ) t on t.project = r.project and t.trace_id = r.trace_id and r.time > t.time
),
near as (
    select l.place as leader, l.is_rerank as is_led_by_rerank, l.since, r.time >= l.time as is_within, r.*
    from (select *, unnest(range(greatest(place - 32, 1), place)) as before from leaders) l
    join retrievals r on r.project = l.project and r.trace_id = l.trace_id and r.place = l.before
    where list_has_any(r.skill_ids, l.skill_ids)
),
bounded as (
    select *,
        coalesce(max(place) filter (is_rerank and not is_within) over (partition by project, trace_id, leader), 0)
            as rerank_before
    from near
),
reranked as (
    select *,
        row_number() over (partition by project, trace_id, leader order by place desc) as age,
        row_number() over (partition by project, trace_id, leader, strategy order by place desc) as age_of_strategy
    from bounded
    where is_led_by_rerank and not is_rerank and not is_within
),
parts as (
    select *, place as leader, true as is_within from leaders
    union all by name
    from bounded where is_within
    union all by name
    from reranked where age = 1 or (age_of_strategy = 1 and ended_at > since and place > rerank_before)
)
select project, trace_id, leader, place, event_id, time, ended_at, query, strategy, stage_ms, embedding_version,
    is_rerank,
    row_number() over (partition by project, trace_id, leader order by place desc) - 1 as nth,
    -- The time of what has parts is theirs.
    place < leader or not bool_or(place < leader and is_within) over (partition by project, trace_id, leader)
        as is_innermost
from parts;
