-- Call facts, repeats of one event folded, each with the registry entry that its name meant at its time.
create table call_facts as
with repeated as (
    select project, event_id from fact_calls group by all having count(*) > 1
),
single as (
    select * from fact_calls anti join repeated using (project, event_id)
),
folded as (
    select
        project,
        event_id,
        fold_time(time, time_is_receipt) as time,
        bool_and(coalesce(time_is_receipt, false)) as time_is_receipt,
        min(received_at) as received_at,
        -- What ran it knows more than what proposed it, and that more than what quotes it.
        arg_min(role, list_position(['run', 'propose', 'answer'], role)) as role,
        fold(columns([
            'trace_id', 'span_id', 'parent_span_id', 'session_id', 'agent', 'model', 'environment', 'release',
            'call_id', 'selection_id', 'skill_id', 'phase', 'error_kind', 'error_message', 'arguments', 'args_digest',
            'parent_call_id'
        ])),
        fold_list(args_keys) as args_keys,
        min(ordinal) as ordinal,
        bool_and(ok) as ok,
        max(latency_ms) as latency_ms,
        max(attempt) as attempt,
        bool_or(retryable) as retryable,
        max(depth) as depth
    from fact_calls semi join repeated using (project, event_id)
    group by project, event_id
),
events as (
    select
        * exclude (date, fact, source_request, mapping_version) replace (
            coalesce(time, received_at) as time,
            coalesce(time_is_receipt, false) as time_is_receipt,
            coalesce(role, 'run') as role,
            -- Whoever names the kind of failure says that it failed.
            coalesce(ok, if(error_kind is null, null, false)) as ok
        )
    from (from single union all by name from folded)
    where skill_id is not null
)
select e.*, n.skill_id as registry_skill_id, null::varchar as retold_by
from events e
left join registry_names n
    on n.project = e.project and n.called = e.skill_id and e.time >= n.valid_from and e.time < n.valid_to;
