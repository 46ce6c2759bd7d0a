-- Selection facts folded by event. Most events have one fact: those pass unfolded.
create or replace view told_selections as
with repeated as (
    select project, event_id from fact_selections group by all having count(*) > 1
),
single as (
    select * from fact_selections anti join repeated using (project, event_id)
),
folded as (
    select
        project,
        event_id,
        fold_time(time, time_is_receipt) as time,
        bool_and(coalesce(time_is_receipt, false)) as time_is_receipt,
        min(received_at) as received_at,
        if(bool_or(coalesce(role, 'turn') = 'turn'), null, if(bool_or(role = 'run'), 'run', 'retrieval')) as role,
        max(ended_at) as ended_at,
        fold(columns([
            'trace_id', 'span_id', 'parent_span_id', 'session_id', 'agent', 'model', 'environment', 'release', 'language',
             'intent_domain', 'intent_action', 'intent_object', 'strategy', 'fallback_reason',
            'registry_version', 'embedding_version', 'weights_version', 'model_version', 'shadow_embedding_version',
            'previous_skill_id', 'context_digest', 'source_request', 'mapping_version'
        ])),
        -- Told message by message, the newest of the user's is what was asked.
        coalesce(
            fold(if(coalesce(role, 'turn') = 'turn', query, null)),
            arg_max(query, (time, fold_order(length(query), query))) filter (query is not null)
        ) as query,
        fold_list(columns(['candidates', 'picks', 'shadow_skill_ids'])),
        bool_or(columns(['truncated', 'ranked', 'randomized', 'no_match', 'fallback'])),
        max(columns(['turn', 'menu_tokens'])),
        if(count(stage_ms) > 0, struct_pack(
                    intent := max(stage_ms.intent),
                    embed := max(stage_ms.embed),
                    sparse := max(stage_ms.sparse),
                    dense := max(stage_ms.dense),
                    merge := max(stage_ms.merge),
                    rerank := max(stage_ms.rerank),
                    llm_select := max(stage_ms.llm_select),
                    total := max(stage_ms.total)
        ), null) as stage_ms
    from fact_selections semi join repeated using (project, event_id)
    group by project, event_id
),
told as (
    select
        * exclude (date, fact) replace (
            nullif(role, 'turn') as role,
            coalesce(time, received_at) as time,
            coalesce(time_is_receipt, false) as time_is_receipt,
            -- A score or a retrieval's name says that the order was a ranking, unless the sender says it was not.
            coalesce(
                ranked,
                strategy <> 'llm_direct'
                or len(list_filter(
                    candidates, lambda c: coalesce(c.score, c.bm25, c.dense, c.rerank) is not null
                )) > 0,
                len(list_filter(
                    candidates, lambda c: coalesce(c.score, c.bm25, c.dense, c.rerank) is not null
                )) > 0,
                false
            ) as ranked,
            coalesce(randomized, false) as randomized,
            coalesce(fallback, false) as fallback
        )
    from (from single union all by name from folded)
)
from told;
