-- Calls that failed for their arguments, by an earlier attempt of their own or in the end.
with broken as (
    select * from calls
    where (not ok and error_kind = 'invalid_arguments')
        or len(list_filter(phases, lambda p: not p.ok and p.error_kind = 'invalid_arguments')) > 0
)
select b.*, coalesce(b.registry_skill_id, b.skill_id) as skill,
    coalesce(b.ok, false) or exists (
        select 1 from calls c
        where c.project = b.project and c.session_id = b.session_id and c.ok and c.started_at > b.started_at
            and coalesce(c.registry_skill_id, c.skill_id) = coalesce(b.registry_skill_id, b.skill_id)
    ) as hit
from broken b
