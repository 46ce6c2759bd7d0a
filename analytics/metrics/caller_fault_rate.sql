select * replace (if(hit, error_kind, null) as error_kind)
from (
    select *, coalesce(registry_skill_id, skill_id) as skill,
        not ok and error_kind in ('invalid_arguments', 'not_found', 'cancelled') as hit
    from calls where ok is not null
)
