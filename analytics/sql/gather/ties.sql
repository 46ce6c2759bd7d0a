-- Units in the segments that the gathered facts reach by the id of a call.
-- Verdicts on a call id that no gathered call of their own trace or session has.
with verdicts as (
    select project, call_id, coalesce(time, received_at) as time
    from fact_feedback f
    where call_id is not null and selection_id is null and not exists (
        from fact_calls c
        where c.project = f.project and c.call_id = f.call_id
            and (c.trace_id = f.trace_id or c.session_id = f.session_id)
    )
),
by_call as (
    select c.unit
    from verdicts v
    join settled_calls c on c.project = v.project and c.call_id = v.call_id
    qualify row_number() over (
        partition by v.project, v.call_id, v.time order by c.started_at <= v.time desc, c.started_at desc, c.call_key
    ) = 1
)
from by_call
union
-- Verdicts that were settled before the call that they are about.
select unit
from settled_feedback f
semi join (select distinct project, call_id from fact_calls where call_id is not null) c
    on c.project = f.project and c.call_id = f.call_id
where f.selection_id is null;
