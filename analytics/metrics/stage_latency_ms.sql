select s.* exclude (stage_ms), u.stage, u.value
from selections s, lateral (
    select unnest([
        struct_pack(stage := 'intent', value := s.stage_ms.intent),
        struct_pack(stage := 'embed', value := s.stage_ms.embed),
        struct_pack(stage := 'sparse', value := s.stage_ms.sparse),
        struct_pack(stage := 'dense', value := s.stage_ms.dense),
        struct_pack(stage := 'merge', value := s.stage_ms.merge),
        struct_pack(stage := 'rerank', value := s.stage_ms.rerank),
        struct_pack(stage := 'llm_select', value := s.stage_ms.llm_select),
        struct_pack(stage := 'total', value := s.stage_ms.total)
    ], recursive := true)
) u
where s.stage_ms is not null
union all by name
select * exclude (error_kind), 'call' as stage, latency_ms as value from calls
-- by skill
select *, coalesce(registry_skill_id, skill_id) as skill, 'call' as stage, latency_ms as value from calls
