-- One row a ranked selection with a pick: whether the order, the list or the people concerned disagreed with it.
create or replace view made_mismatches as
with corrections as (
    select project, target_selection_id as event_id, bool_or(source is distinct from 'judge') as corrected,
        true as corrected_or_judged
    from feedback
    where target_selection_id is not null
        and (
            kind in ('arguments_edited', 'reasked', 'wrong_skill', 'rejected')
            -- A label that expects no skill.
            or (kind = 'label' and len(expected) = 0)
        )
    group by project, target_selection_id
),
picked as (
    select project, event_id,
        list_sort(list(distinct struct_pack(
            skill_id := coalesce(skill_id, pick), domain := domain,
            listed := coalesce(list_contains(listed_picks, pick), false)
        ))) as picked
    from picked_names
    join picked_offers using (project, event_id)
    group by project, event_id
)
select
    s.project, s.event_id, s.time, s.hour, s.agent, s.model, s.environment, s.release, s.language, s.strategy,
    s.weights_version, s.embedding_version,
    coalesce(t.registry_skill_id, t.skill_id) as top_skill_id,
    t.domain as top_domain,
    p.picked,
    coalesce(t.picked, false) as top_picked,
    coalesce(t.skipped, false) as top_skipped,
    len(s.listed_picks) < s.n_picks as off_list,
    coalesce(c.corrected, false) as corrected,
    coalesce(c.corrected_or_judged, false) as corrected_or_judged
from selections s
left join candidates t on t.project = s.project and t.event_id = s.event_id and t.rank = 1
left join corrections c on c.project = s.project and c.event_id = s.event_id
left join picked p on p.project = s.project and p.event_id = s.event_id
where s.ranked and s.n_picks > 0;
