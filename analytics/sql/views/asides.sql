-- Selections with what the runs of their trace and the searches before them tell, and without what is none.
update selection_base b set
    session_id = coalesce(b.session_id, k.session_id),
    agent = coalesce(b.agent, k.agent),
    model = coalesce(b.model, k.model),
    environment = coalesce(b.environment, k.environment),
    release = coalesce(b.release, k.release),
    query = coalesce(b.query, k.query),
    truncated = b.truncated or (b.query is null and coalesce(k.truncated, false))
from (
    select f.event_id, k.*
    from (
        select project, event_id, trace_id, time from selection_base semi join run_knowledge using (project, trace_id)
    ) f
    asof join run_knowledge k on k.project = f.project and k.trace_id = f.trace_id and f.time >= k.time
) k
where k.project = b.project and k.event_id = b.event_id;

update selection_base b set
    candidates = r.candidates,
    ranked = true,
    ranked_at = r.ranked_at,
    query = coalesce(b.query, r.query),
    strategy = if(r.strategy is null or b.strategy <> 'llm_direct', b.strategy, r.strategy),
    embedding_version = coalesce(b.embedding_version, r.embedding_version),
    stage_ms = struct_pack(
        intent := coalesce(b.stage_ms.intent, r.stage_ms.intent),
        embed := coalesce(b.stage_ms.embed, r.stage_ms.embed),
        sparse := coalesce(b.stage_ms.sparse, r.stage_ms.sparse),
        dense := coalesce(b.stage_ms.dense, r.stage_ms.dense),
        merge := coalesce(b.stage_ms.merge, r.stage_ms.merge),
        rerank := coalesce(b.stage_ms.rerank, r.stage_ms.rerank),
        llm_select := coalesce(b.stage_ms.llm_select, r.stage_ms.llm_select),
        total := coalesce(b.stage_ms.total, r.stage_ms.total)
    )
from search_fills r
where r.project = b.project and r.event_id = b.event_id;

delete from selection_base b
using asides a
where a.project = b.project and a.event_id = b.event_id;
