-- What the search before an unranked selection says of it: order, scores, strategy and time.
create table search_scores as
select p.project, p.trace_id, p.leader, r.skill_id,
    min(r.rank) filter (p.nth = 0) as rank,
    struct_pack(
        score := arg_min(r.candidate.score, p.nth),
        bm25 := arg_min(r.candidate.bm25, p.nth),
        dense := arg_min(r.candidate.dense, p.nth),
        rerank := arg_min(r.candidate.rerank, p.nth),
        source := arg_min(r.candidate.source, p.nth)
    ) as found
from search_parts p
join retrieved r using (project, event_id)
group by p.project, p.trace_id, p.leader, r.skill_id;

create table search_sums as
with timed as (
    select *,
        list_sum([
            stage_ms.intent, stage_ms.embed, stage_ms.sparse, stage_ms.dense, stage_ms.merge, stage_ms.rerank,
            stage_ms.llm_select
        ]) as stages_ms,
        if(is_innermost, stage_ms, null) as own_ms
    from search_parts
)
select project, trace_id, leader,
    arg_min(query, nth) as query,
    arg_min(embedding_version, nth) as embedding_version,
    max(ended_at) filter (nth = 0) as ended_at,
    case
        when bool_or(nth = 0 and strategy = 'hybrid')
            or count(distinct strategy) filter (is_innermost and not is_rerank) > 1 then 'hybrid'
        else coalesce(
            min(strategy) filter (is_innermost and not is_rerank), min(strategy) filter (nth = 0),
            if(bool_or(is_rerank), 'rerank', null)
        )
    end as strategy,
    struct_pack(
        intent := sum(own_ms.intent order by nth),
        embed := sum(own_ms.embed order by nth),
        sparse := sum(own_ms.sparse order by nth),
        dense := sum(own_ms.dense order by nth),
        merge := sum(own_ms.merge order by nth),
        rerank := sum(own_ms.rerank order by nth),
        llm_select := sum(own_ms.llm_select order by nth),
        -- What goes on around its parts takes as long as it goes on.
        total := if(
            bool_and(is_innermost),
            sum(coalesce(stage_ms.total, stages_ms) order by nth),
            max(date_diff('microsecond', time, ended_at) / 1000) filter (nth = 0)
        )
    ) as stage_ms
from timed
group by all;

create table search_fills as
with told as (
    select u.project, u.event_id, u.trace_id, r.place as leader, u.candidates
    from unranked u
    join rankings r using (project, event_id)
),
menus as (
    select project, event_id, trace_id, leader, unnest(candidates) as c, unnest(range(len(candidates))) as menu_rank
    from told
    where len(candidates) > 0
),
-- Where nothing was offered, all that was found was.
lists as (
    select t.project, t.event_id, t.trace_id, t.leader, r.candidate as c, r.rank as menu_rank
    from told t
    join retrieved r on r.project = t.project and r.trace_id = t.trace_id and r.place = t.leader
    where len(t.candidates) = 0
),
ordered as (
    select m.project, m.event_id,
        list(struct_pack(
            skill_id := m.c.skill_id,
            score := coalesce(m.c.score, s.found.score),
            bm25 := coalesce(m.c.bm25, s.found.bm25),
            dense := coalesce(m.c.dense, s.found.dense),
            rerank := coalesce(m.c.rerank, s.found.rerank),
            source := coalesce(m.c.source, s.found.source),
            propensity := m.c.propensity,
            team := m.c.team
        ) order by s.rank nulls last, m.menu_rank) as candidates
    from (from menus union all from lists) m
    left join search_scores s
        on s.project = m.project and s.trace_id = m.trace_id and s.leader = m.leader and s.skill_id = m.c.skill_id
    group by m.project, m.event_id
)
select t.project, t.event_id, o.candidates, s.query, s.strategy, s.stage_ms, s.embedding_version,
    s.ended_at as ranked_at
from told t
join ordered o using (project, event_id)
join search_sums s using (project, trace_id, leader);
