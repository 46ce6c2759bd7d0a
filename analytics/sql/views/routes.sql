-- One row a change of state of a discovery router.
create table routes as
with repeated as (
    select project, event_id from fact_routes group by all having count(*) > 1
),
single as (
    select * exclude (date, fact) from fact_routes anti join repeated using (project, event_id)
),
folded as (
    select
        project,
        event_id,
        fold_time(time, time_is_receipt) as time,
        bool_and(coalesce(time_is_receipt, false)) as time_is_receipt,
        min(received_at) as received_at,
        fold(columns([
            'trace_id', 'span_id', 'session_id', 'agent', 'model', 'environment', 'release', 'instance', 'state',
            'reason', 'source_request', 'mapping_version'
        ])),
        max(columns(['p99_ms', 'error_rate']))
    from fact_routes semi join repeated using (project, event_id)
    group by project, event_id
)
select
    project, event_id, coalesce(time, received_at) as time, coalesce(time_is_receipt, false) as time_is_receipt,
    received_at, trace_id, span_id, session_id, agent, model, environment, release, instance, state, reason, p99_ms,
    error_rate, source_request, mapping_version
from (from single union all by name from folded);
