-- A list whose first was neither picked nor passed over for a lower one has no pick.
select *, coalesce(registry_skill_id, skill_id) as skill, picked as hit
from candidates where rank = 1 and ranked and (picked or skipped)
