select *, coalesce(registry_skill_id, skill_id) as skill, len(unknown_arguments) > 0 as hit
from calls where unknown_arguments is not null
