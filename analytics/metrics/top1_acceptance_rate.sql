-- A list whose first was neither picked nor passed over for a lower one has no pick.
select *, top_skill_id as skill, top_domain as domain, top_picked as hit
from mismatches where top_picked or top_skipped
