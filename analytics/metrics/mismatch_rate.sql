select *, top_skill_id as skill, top_domain as domain,
    top_skipped or off_list or if($judge, corrected_or_judged, corrected) as hit
from mismatches
