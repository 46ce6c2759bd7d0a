-- Names and numbers side by side: a struct of both takes several times as long to unnest.
select * exclude (stage_ms),
    unnest(['intent', 'embed', 'sparse', 'dense', 'merge', 'rerank', 'llm_select', 'total']) as stage,
    unnest([
        stage_ms.intent, stage_ms.embed, stage_ms.sparse, stage_ms.dense, stage_ms.merge, stage_ms.rerank,
        stage_ms.llm_select, stage_ms.total
    ]) as value
from selections
where stage_ms is not null
union all by name
select * exclude (error_kind), 'call' as stage, latency_ms as value from calls
-- by skill
select *, coalesce(registry_skill_id, skill_id) as skill, 'call' as stage, latency_ms as value from calls
