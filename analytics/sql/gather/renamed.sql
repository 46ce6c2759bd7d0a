-- Units in the segments that name what the registry now judges otherwise than when they were folded.
with changed as (
    select project, called, min(valid_from) as since, max(valid_to) as until
    from (
        (from registry_names except from settled_registry)
        union all
        (from settled_registry except from registry_names)
    )
    group by project, called
),
-- When a project's registry began decides over all of its calls.
begun as (
    select project, min(valid_from) as since, bool_or(source = 'declared') as is_declared
    from skills where authoritative
    group by project
),
begun_anew as (
    select project from (
        (from begun except from settled_begun) union all (from settled_begun except from begun)
    )
),
strangers as (
    select distinct project, skill_id from settled_calls where name_class in ('unknown', 'near_miss')
),
alike as (
    select s.project, s.skill_id, c.since, c.until
    from strangers s
    join changed c on c.project = s.project and folded_name(c.called) = folded_name(s.skill_id)
    union
    select s.project, s.skill_id, c.since, c.until
    from strangers s
    join changed c on c.project = s.project and is_typo(s.skill_id, c.called)
),
met as (
    select project, called as skill_id, since, until from changed union from alike
)
select unit from settled_candidates c
join changed n on n.project = c.project and n.called = c.skill_id and c.time >= n.since and c.time < n.until
union
select unit from settled_calls c
join met n on n.project = c.project and n.skill_id = c.skill_id and c.started_at >= n.since and c.started_at < n.until
union
select unit from (select project, time, unit, unnest(picks) as pick from settled_selections) p
join changed n on n.project = p.project and n.called = p.pick and p.time >= n.since and p.time < n.until
union
select unit from links semi join begun_anew using (project);
