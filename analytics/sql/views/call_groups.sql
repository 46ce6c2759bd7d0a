-- Which facts are one call: `call_key` of every fact. An answer alone never makes a call.
create table call_groups as
with keys as (
    select project, key, count(*) = 1 as is_alone from call_keys
    group by project, key
    having bool_or(role <> 'answer')
)
select c.project, c.event_id, c.selection_id, md5(c.key) as call_key, k.is_alone
from call_keys c join keys k using (project, key);
