-- Which facts are one call: `call_key` of every fact. An answer alone never makes a call.
create table call_groups as
select project, event_id, selection_id, md5(key) as call_key
from call_keys
qualify bool_or(role <> 'answer') over (partition by project, key);
