-- One row a verdict, with the selection it is about: given; its call's; else the newest selection with a pick of its
-- trace, then of its session, at or before it.
create or replace view made_feedback as
with repeated as (
    select project, event_id from fact_feedback group by all having count(*) > 1
),
single as (
    select * exclude (date, fact) from fact_feedback anti join repeated using (project, event_id)
),
folded as (
    select
        project,
        event_id,
        fold_time(time, time_is_receipt) as time,
        bool_and(coalesce(time_is_receipt, false)) as time_is_receipt,
        min(received_at) as received_at,
        fold(columns([
            'trace_id', 'span_id', 'session_id', 'agent', 'model', 'environment', 'release', 'kind', 'selection_id',
            'call_id', 'value', 'value_text', 'source', 'annotator', 'source_request', 'mapping_version'
        ])),
        fold_list(expected) as expected
    from fact_feedback semi join repeated using (project, event_id)
    group by project, event_id
),
verdicts as (
    select * replace (coalesce(time, received_at) as time, coalesce(time_is_receipt, false) as time_is_receipt)
    from (from single union all by name from folded)
),
by_call as (
    select v.project, v.event_id, c.selection_id
    from verdicts v
    join calls c on c.project = v.project and c.call_id = v.call_id
    -- Agents reuse call ids: the verdict's own trace, then its session, then the newest before it.
    qualify row_number() over (
        partition by v.project, v.event_id
        order by coalesce(c.trace_id = v.trace_id, false) desc, coalesce(c.session_id = v.session_id, false) desc,
            c.started_at <= v.time desc, c.started_at desc, c.call_key
    ) = 1
),
decided as (
    select project, trace_id, session_id, time, event_id as selection_id from selections where n_picks > 0
),
by_trace as (
    select v.project, v.event_id, d.selection_id
    from verdicts v
    asof join (
        select project, trace_id, time, max(selection_id) as selection_id from decided
        where trace_id is not null group by all
    ) d on d.project = v.project and d.trace_id = v.trace_id and v.time >= d.time
),
by_session as (
    select v.project, v.event_id, d.selection_id
    from verdicts v
    asof join (
        select project, session_id, time, max(selection_id) as selection_id from decided
        where session_id is not null group by all
    ) d on d.project = v.project and d.session_id = v.session_id and v.time >= d.time
)
select
    v.project, v.event_id, v.time, v.time_is_receipt, v.received_at, v.trace_id, v.span_id, v.session_id, v.agent,
    v.model, v.environment, v.release, v.kind, v.selection_id, v.call_id,
    coalesce(
        if(a.event_id is null, v.selection_id, null), c.selection_id, t.selection_id, s.selection_id
    ) as target_selection_id,
    v.value, v.value_text, v.expected, v.source, v.annotator, v.source_request, v.mapping_version
from verdicts v
left join by_call c using (project, event_id)
left join by_trace t using (project, event_id)
left join by_session s using (project, event_id)
-- A verdict on a run that is no selection is one on its trace.
left join asides a on a.project = v.project and a.event_id = v.selection_id;
