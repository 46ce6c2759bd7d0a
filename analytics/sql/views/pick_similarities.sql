-- One row a pick whose query and skill could be compared.
create table pick_similarities as
select project, date, time, computed_at, event_id, skill_id, previous_skill_id, similarity, best_unpicked,
    embedding_version, basis
from fact_pick_similarities
qualify row_number() over (
    partition by project, event_id, skill_id order by computed_at desc nulls last, basis
) = 1;
