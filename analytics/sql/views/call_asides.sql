-- A call given to what is no selection has to find one. Those that a run lists are its retelling of calls: `retold_by`.
-- That run is not who called.
update call_facts f set
    selection_id = null,
    retold_by = if(f.role = 'propose', f.selection_id, null),
    agent = if(f.role = 'propose', null, f.agent),
    model = if(f.role = 'propose', null, f.model)
from asides a
where a.project = f.project and a.event_id = f.selection_id;

-- What a call may take from the runs of its trace. Its session also finds its selection.
insert into call_fills
select f.project, f.event_id, k.session_id, k.agent, k.model, k.environment, k.release
from (
    select project, event_id, trace_id, time from call_facts semi join run_knowledge using (project, trace_id)
) f
asof join run_knowledge k on k.project = f.project and k.trace_id = f.trace_id and f.time >= k.time;

update call_facts f set session_id = k.session_id
from call_fills k
where k.project = f.project and k.event_id = f.event_id and f.session_id is null;
