-- What a called string meant, over time: the entry whose id it is, or, without a prefix, the only active one that
-- bears it as a name. It holds while valid_from <= time < valid_to. `state`: active, retired, ambiguous (several active entries bear the name).
create table registry_names as
with entries as (
    select project, skill_id, name, valid_from, valid_to, is_active from skills where authoritative
),
bearers as (
    select project, skill_id as called, skill_id, true as is_id, valid_from, valid_to, is_active from entries
    union all
    select project, name as called, skill_id, false as is_id, valid_from, valid_to, is_active from entries
    where name <> skill_id and not contains(name, '/')
),
moments as (
    select project, called, valid_from as moment from bearers
    union
    select project, called, valid_to as moment from bearers where valid_to is not null
),
spans as (
    select project, called, moment as valid_from,
        lead(moment) over (partition by project, called order by moment) as valid_to
    from moments
),
borne as (
    select s.project, s.called, s.valid_from, s.valid_to,
        max(b.skill_id) filter (b.is_id) as id,
        coalesce(bool_or(b.is_active) filter (b.is_id), false) as id_is_active,
        count(distinct b.skill_id) filter (not b.is_id and b.is_active) as active_names,
        max(b.skill_id) filter (not b.is_id and b.is_active) as active_name,
        count(distinct b.skill_id) filter (not b.is_id and not b.is_active) as retired_names,
        max(b.skill_id) filter (not b.is_id and not b.is_active) as retired_name
    from spans s
    join bearers b
        on b.project = s.project and b.called = s.called
        and b.valid_from <= s.valid_from and (b.valid_to is null or b.valid_to > s.valid_from)
    group by all
),
meant as (
    select project, called, valid_from, valid_to,
        case
            when id_is_active then id
            when active_names = 1 then active_name
            when id is not null then id
            when active_names = 0 and retired_names = 1 then retired_name
        end as skill_id,
        case
            when id_is_active or active_names = 1 then 'active'
            when id is not null then 'retired'
            when active_names > 1 then 'ambiguous'
            else 'retired'
        end as state
    from borne
),
described as (
    select m.*, e.domain, e.argument_names
    from meant m
    left join skills e
        on e.authoritative and e.project = m.project and e.skill_id = m.skill_id
        and e.valid_from <= m.valid_from and (e.valid_to is null or e.valid_to > m.valid_from)
),
-- Spans that mean the same are one, so that few stand behind a name.
changed as (
    select * from described
    window history as (partition by project, called order by valid_from)
    qualify row_number() over history = 1
        or (skill_id, state, domain, argument_names)
            is distinct from lag((skill_id, state, domain, argument_names)) over history
)
select * replace (
    coalesce(lead(valid_from) over (partition by project, called order by valid_from), 'infinity') as valid_to
)
from changed;
