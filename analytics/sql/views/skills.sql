-- The registry's history. A project that declares nothing learns from what was offered: tool definitions (observed
-- facts), and the names in its selections.
create table skills as
with declared as (
    select distinct project from fact_skills where source = 'declared'
),
known as (
    select project, skill_id, min(time) as since from fact_skills group by all
),
-- By name alone, where nothing else is known by then: a definition says more.
offered as (
    select project, skill_id, 'observed' as source, 'upsert' as op, min(time) as time, min(received_at) as received_at
    from (
        select project, time, received_at, unnest(candidates).skill_id as skill_id from selection_base
        union all by name
        from settled_offers
    )
    anti join declared using (project)
    left join known using (project, skill_id)
    where skill_id is not null
    group by project, skill_id
    having min(time) < coalesce(min(since), 'infinity')
),
written as (
    select project, skill_id, source, time, op, received_at, seq, name, kind, version, description, domain, entry,
        registry_version,
        case when op = 'retire' then false else coalesce(is_active, true) end as is_active
    from (from fact_skills union all by name from offered)
    -- The last write of an instant holds. Observations have no order among themselves: the longer one.
    qualify row_number() over (
        partition by project, skill_id, source, time
        order by if(source = 'declared', seq, 0) desc nulls last, length(entry) desc nulls last, md5(entry), op,
            seq nulls last, received_at
    ) = 1
),
-- A retirement says nothing of the entry: it keeps what was written last. What is known by its name alone has an entry
-- of its id, as the collector writes it.
described as (
    select project, skill_id, source, time, received_at, seq, registry_version, is_active,
        if(op = 'retire', last_value(name ignore nulls) over past, name) as name,
        if(op = 'retire', last_value(kind ignore nulls) over past, kind) as kind,
        if(op = 'retire', last_value(version ignore nulls) over past, version) as version,
        if(op = 'retire', last_value(description ignore nulls) over past, description) as description,
        if(op = 'retire', last_value(domain ignore nulls) over past, domain) as domain,
        coalesce(
            if(op = 'retire', last_value(entry ignore nulls) over past, entry),
            json_object('skill_id', skill_id)::varchar
        ) as entry
    from written
    window past as (
        partition by project, skill_id, source order by time rows between unbounded preceding and current row
    )
),
changed as (
    select * from described
    window states as (partition by project, skill_id, source order by time)
    qualify row_number() over states = 1
        or (is_active, entry, name, domain, version, description)
            is distinct from lag((is_active, entry, name, domain, version, description)) over states
)
select
    project,
    skill_id,
    time,
    time as valid_from,
    lead(time) over (partition by project, skill_id, source order by time) as valid_to,
    is_active,
    source,
    source = 'declared' or project not in (select project from declared) as authoritative,
    coalesce(name, skill_id) as name,
    kind,
    version,
    description,
    domain,
    entry,
    case
        when json_valid(entry) and json_type(entry, '$.parameters_schema.properties') = 'OBJECT'
        then json_keys(entry, '$.parameters_schema.properties')
    end as argument_names,
    registry_version,
    received_at,
    seq
from changed;
