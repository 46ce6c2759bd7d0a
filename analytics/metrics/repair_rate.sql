-- Calls that failed for their arguments, by an earlier attempt of their own or in the end.
with broken as (
    select * from calls
    where project = $project and (time >= $start or $start is null) and (time < $end or $end is null)
        and (
            (not ok and error_kind = 'invalid_arguments')
            -- One phase alone failed as the call did.
            or if(
                len(phases) > 1,
                len(list_filter(phases, lambda p: not p.ok and p.error_kind = 'invalid_arguments')) > 0,
                false
            )
        )
),
-- The last success of a skill in a session tells of every failure before it whether one came after.
mended as (
    select project, session_id, coalesce(registry_skill_id, skill_id) as meant, max(started_at) as last_at
    from calls semi join broken using (project, session_id)
    where ok and (started_at >= $start or $start is null)
    group by all
)
select b.*, coalesce(b.registry_skill_id, b.skill_id) as skill,
    coalesce(b.ok, false) or coalesce(m.last_at > b.started_at, false) as hit
from broken b
left join mended m
    on m.project = b.project and m.session_id = b.session_id and m.meant = coalesce(b.registry_skill_id, b.skill_id)
