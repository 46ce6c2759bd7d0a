-- A model span that is silent but for its log records, inside the span that tells of its turn, is that turn: its facts
-- take the turn's id.
create table inner_turns as
select r.project, r.event_id, min(t.event_id) as turn_id
from fact_selections r
join fact_selections t
    on t.project = r.project and t.trace_id = r.trace_id and t.span_id = r.parent_span_id and t.event_id <> r.event_id
where r.role = 'run' and coalesce(t.role, 'turn') = 'turn'
group by r.project, r.event_id;

update fact_selections f set event_id = i.turn_id
from inner_turns i where i.project = f.project and i.event_id = f.event_id;
update fact_calls f set selection_id = i.turn_id
from inner_turns i where i.project = f.project and i.event_id = f.selection_id;
update fact_feedback f set selection_id = i.turn_id
from inner_turns i where i.project = f.project and i.event_id = f.selection_id;
