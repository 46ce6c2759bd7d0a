-- One row an impression.
create or replace view made_candidates as
with listed as (
    select * exclude (candidates), unnest(candidates) as candidate, unnest(range(1, len(candidates) + 1)) as rank
    from (
        select b.project, b.event_id, b.time, hour_of(b.time) as hour, b.candidates,
            list_transform(b.candidates, lambda c: c.skill_id) as listed, b.trace_id, b.session_id, b.agent, b.model, b.environment, b.release, b.language, b.strategy, b.weights_version, b.embedding_version,
            b.model_version, b.unit, b.ranked and not d.closing as ranked, b.randomized, d.closing, d.names, d.lowest_rank
        from selection_base b
        join decisions d using (project, event_id)
        where len(b.candidates) > 0
    )
),
named as (
    select l.*, l.candidate.skill_id as skill_id, n.skill_id as registry_skill_id, n.domain,
        coalesce(list_contains(l.names, l.candidate.skill_id), false)
            or coalesce(list_contains(l.names, n.skill_id), false) as picked
    from listed l
    left join registry_names n
        on n.project = l.project and n.called = l.candidate.skill_id
        and l.time >= n.valid_from and l.time < n.valid_to
    where list_position(l.listed, l.candidate.skill_id) = l.rank
)
select
    project, event_id, time, hour, skill_id, registry_skill_id, domain, rank,
    candidate.score as score, candidate.bm25 as bm25, candidate.dense as dense, candidate.rerank as rerank,
    candidate.source as source, candidate.propensity as propensity, candidate.team as team,
    picked,
    if(ranked, not picked and coalesce(rank < lowest_rank, false), null) as skipped,
    trace_id, session_id, agent, model, environment, release, language, strategy, weights_version,
    embedding_version, model_version, ranked, randomized, closing, unit
from named;
