-- One row an impression.
create table candidates as
with picked as (
    select distinct o.project, o.event_id, o.rank
    from offers o
    semi join pick_names p on p.project = o.project and p.event_id = o.event_id and p.skill_id = o.skill_id
),
lowest as (
    select project, event_id, max(rank) as rank from picked group by project, event_id
)
select
    l.project, l.event_id, l.time, s.hour, l.skill_id, n.skill_id as registry_skill_id, n.domain, l.rank,
    l.candidate.score as score, l.candidate.bm25 as bm25, l.candidate.dense as dense, l.candidate.rerank as rerank,
    l.candidate.source as source, l.candidate.propensity as propensity, l.candidate.team as team,
    p.rank is not null as picked,
    if(s.ranked, p.rank is null and coalesce(l.rank < d.rank, false), null) as skipped,
    s.trace_id, s.session_id, s.agent, s.model, s.environment, s.release, s.language, s.strategy, s.weights_version,
    s.embedding_version, s.model_version, s.ranked, s.randomized, s.closing
from listed l
join selections s on s.project = l.project and s.event_id = l.event_id
left join picked p on p.project = l.project and p.event_id = l.event_id and p.rank = l.rank
left join lowest d on d.project = l.project and d.event_id = l.event_id
left join registry_names n
    on n.project = l.project and n.called = l.skill_id and l.time >= n.valid_from and l.time < n.valid_to;
