-- Whether a selection only closes a turn, and what its picks are.
create table decisions as
with opened as (
    select project, trace_id, min(started_at) as first_call_at
    from calls
    where trace_id is not null
    group by all
),
-- What a search found was there for the first decision after it. Once a call followed, a turn that picks nothing more
-- did not decide on it again.
spent as (
    select b.project, b.event_id
    from (from selection_base where ranked_at is not null) b
    asof join (from calls where trace_id is not null) c
        on c.project = b.project and c.trace_id = b.trace_id and b.time > c.started_at
    where c.started_at >= b.ranked_at
),
judged as (
    select b.project, b.event_id, p.picks,
        len(p.picks) = 0 and coalesce(o.first_call_at < b.time, false)
            and (not b.ranked or s.event_id is not null) as closing
    from selection_base b
    join picks p using (project, event_id)
    left join opened o on o.project = b.project and o.trace_id = b.trace_id
    left join spent s on s.project = b.project and s.event_id = b.event_id
)
select j.*, coalesce(o.names, []) as names, coalesce(o.listed_picks, []) as listed_picks, o.lowest_rank
from judged j
left join picked_offers o using (project, event_id);

-- One row a decision turn.
create or replace view made_selections as
select
    b.project, b.event_id, b.time, hour_of(b.time) as hour, b.time_is_receipt, b.trace_id, b.span_id, b.session_id, b.agent, b.model,
    b.environment, b.release, b.turn, b.query, b.truncated, b.language, b.intent_domain, b.intent_action,
    b.intent_object, b.candidates,
    coalesce(len(list_distinct(list_transform(b.candidates, lambda c: c.skill_id))), 0) as n_candidates,
    b.ranked and not p.closing as ranked, b.randomized, p.picks,
    len(p.picks) as n_picks,
    list_filter(p.picks, lambda x: list_contains(p.listed_picks, x)) as listed_picks,
    b.no_match, b.strategy, b.fallback, b.fallback_reason, b.stage_ms, b.registry_version, b.embedding_version,
    b.weights_version, b.model_version, b.menu_tokens, b.shadow_embedding_version, b.shadow_skill_ids,
    b.previous_skill_id, b.context_digest,
    p.closing,
    b.received_at, b.source_request, b.mapping_version,
    b.unit
from selection_base b
join decisions p using (project, event_id);
