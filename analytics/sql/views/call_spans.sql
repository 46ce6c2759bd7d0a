-- Runs inside runs (an MCP span inside an execute_tool span) are one call, unless both have ids that differ.
-- One row a span that ran something: the outermost span of its call, and the call id that any of them knows.
create table call_spans as
with recursive ran as (
    select project, trace_id, span_id, min(parent_span_id) as parent_span_id, min(call_id) as call_id
    from call_facts
    where role = 'run' and trace_id is not null and span_id is not null
    group by project, trace_id, span_id
),
climbed as (
    select project, trace_id, span_id, span_id as outer_span_id, parent_span_id, call_id, 0 as steps from ran
    union all
    select c.project, c.trace_id, c.span_id, p.span_id, p.parent_span_id, coalesce(c.call_id, p.call_id), c.steps + 1
    from climbed c
    join ran p on p.project = c.project and p.trace_id = c.trace_id and p.span_id = c.parent_span_id
    where c.steps < 16 -- spans of a broken export may be each other's parents
        and (c.call_id is null or p.call_id is null or c.call_id = p.call_id)
),
outermost as (
    from climbed
    qualify row_number() over (partition by project, trace_id, span_id order by steps desc) = 1
)
select project, trace_id, span_id, outer_span_id,
    coalesce(call_id, min(call_id) over (partition by project, trace_id, outer_span_id)) as call_id,
    count(*) over (partition by project, trace_id, outer_span_id) > 1 as is_nested
from outermost;
