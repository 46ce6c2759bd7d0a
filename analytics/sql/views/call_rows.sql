-- Calls folded from the facts of one key, before names are judged. Many have one fact alone: those pass unfolded.
create table call_rows as
with alone as (
    select f.project, g.call_key, f.event_id, g.selection_id, f.time as started_at, f.time_is_receipt, f.received_at,
        f.trace_id, f.session_id, f.agent, f.model, f.environment, f.release, f.call_id, f.arguments, f.args_digest,
        f.parent_call_id, f.skill_id, f.args_keys, f.ordinal, f.latency_ms, greatest(f.attempt, 1) as attempts, f.depth,
        f.role = 'run' as has_run,
        f.ok = false as has_failed,
        if(f.phase in ('exec', 'output') or (f.phase is null and f.role <> 'propose'), f.ok, null) as has_finished,
        if(f.ok = false, coalesce(f.error_kind, if(f.role = 'answer', 'tool_error', null)), null) as error_kind,
        if(f.ok = false, f.error_message, null) as error_message,
        f.retryable,
        [struct_pack(
            f.time, phase_order := coalesce(list_position(['invoke', 'validate', 'exec', 'output'], f.phase), 0),
            f.phase, f.role, f.attempt, f.ok, f.latency_ms, f.error_kind
        )] as phases
    from call_facts f
    join (from call_groups where is_alone) g using (project, event_id)
),
facts as (
    select f.* exclude (selection_id, registry_skill_id), g.call_key, g.selection_id,
        f.registry_skill_id is null as is_stranger,
        coalesce(f.attempt, 0) as try,
        max(coalesce(f.attempt, 0)) filter (f.role = 'run') over (partition by f.project, g.call_key) as last_try
    from call_facts f
    join (from call_groups where not is_alone) g using (project, event_id)
),
-- A proposal and an answer speak of the whole call, so of its last attempt.
marked as (
    select *, role <> 'run' or try = last_try as is_last from facts
),
folded as (
    select
        project,
        call_key,
        arg_min(event_id, (
            list_position(['run', 'propose', 'answer'], role), retold_by is not null, phase is not null, event_id
        )) as event_id,
        arg_min(selection_id, (time, event_id)) as selection_id,
        coalesce(
            fold_time(if(role = 'run', time, null), time_is_receipt),
            fold_time(if(retold_by is null, time, null), time_is_receipt),
            fold_time(time, time_is_receipt)
        ) as started_at,
        bool_and(time_is_receipt) as time_is_receipt,
        min(received_at) as received_at,
        fold(columns([
            'trace_id', 'session_id', 'agent', 'model', 'environment', 'release', 'call_id', 'arguments', 'args_digest',
            'parent_call_id'
        ])),
        -- Who doesn't know what a proxy tool was given knows the proxy's name only.
        arg_min(skill_id, (is_stranger, args_digest is null, fold_order(length(skill_id), skill_id))) as skill_id,
        fold_list(args_keys) as args_keys,
        min(ordinal) as ordinal,
        max(latency_ms) as latency_ms,
        greatest(count(distinct try) filter (role = 'run'), max(try), 1) as attempts,
        max(depth) as depth,
        bool_or(role = 'run') as has_run,
        bool_or(ok = false) filter (is_last) as has_failed,
        bool_or(ok) filter (is_last and (phase in ('exec', 'output') or (phase is null and role <> 'propose')))
            as has_finished,
        -- A kind that says what was wrong beats the vague ones. A result that is marked as an error, and says no more, is
        -- the tool's.
        coalesce(
            fold(if(
                is_last and ok = false and error_kind not in ('tool_error', 'exception', 'other'), error_kind, null
            )),
            fold(if(is_last and ok = false, error_kind, null)),
            if(bool_or(role = 'answer' and ok = false) filter (is_last), 'tool_error', null)
        ) as error_kind,
        fold(if(is_last and ok = false, error_message, null)) as error_message,
        bool_or(retryable) filter (is_last) as retryable,
        list_sort(list(distinct struct_pack(
            time, phase_order := coalesce(list_position(['invoke', 'validate', 'exec', 'output'], phase), 0),
            phase, role, attempt, ok, latency_ms, error_kind
        ))) as phases
    from marked
    group by project, call_key
),
named as (
    select f.*, n.skill_id as registry_skill_id, n.state as name_state, n.domain, n.argument_names
    from (from folded union all by name from alone) f
    left join registry_names n
        on n.project = f.project and n.called = f.skill_id and f.started_at >= n.valid_from
        and f.started_at < n.valid_to
),
renames as (
    select project, event_id, list(skill_id) as names from renamed_offers group by project, event_id
)
select f.* exclude (phases),
    list_transform(f.phases, lambda p: struct_pack(
        phase := p.phase, role := p.role, attempt := p.attempt, time := p.time, ok := p.ok,
        latency_ms := p.latency_ms, error_kind := p.error_kind
    )) as phases,
    s.event_id is not null as has_selection,
    coalesce(s.is_menu, false) as has_menu,
    coalesce(list_has_any(
        list_concat(o.listed, r.names), [f.skill_id, coalesce(f.registry_skill_id, f.skill_id)]
    ), false) as is_offered,
    coalesce(f.session_id, s.session_id, k.session_id) as any_session_id,
    coalesce(f.agent, s.agent, k.agent) as any_agent,
    coalesce(f.model, s.model, k.model) as any_model,
    coalesce(f.environment, s.environment, k.environment) as any_environment,
    coalesce(f.release, s.release, k.release) as any_release,
    s.strategy, s.weights_version, s.embedding_version, s.language,
    -- An unranked turn without candidates tells no menu; a ranked one was offered nothing.
    coalesce(len(s.candidates) > 0 or s.ranked, false) as has_candidates
from named f
left join offers o on o.project = f.project and o.event_id = f.selection_id
left join renames r on r.project = f.project and r.event_id = f.selection_id
left join selection_base s on s.project = f.project and s.event_id = f.selection_id
left join call_fills k on k.project = f.project and k.event_id = f.event_id;
