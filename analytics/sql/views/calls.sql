-- One row a call, its name judged against the registry as of its own time.
create or replace view made_calls as
with opened as (
    select project, min(valid_from) as since, bool_or(source = 'declared') as is_declared
    from skills where authoritative
    group by project
),
stranger as (
    select project, call_key, skill_id, started_at from call_rows where name_state is null
),
alike as (
    select s.project, s.skill_id, n.called as known
    from (select distinct project, skill_id from stranger) s
    join (select distinct project, called from registry_names where state = 'active') n
        on n.project = s.project and folded_name(n.called) = folded_name(s.skill_id)
    union
    select s.project, s.skill_id, n.called as known
    from (select distinct project, skill_id from stranger) s
    join (select distinct project, called from registry_names where state = 'active') n
        on n.project = s.project and is_typo(s.skill_id, n.called)
),
near_miss as (
    select distinct s.project, s.call_key
    from stranger s
    join alike a on a.project = s.project and a.skill_id = s.skill_id
    join registry_names n
        on n.project = a.project and n.called = a.known and n.state = 'active'
        and s.started_at >= n.valid_from and s.started_at < n.valid_to
),
judged as (
    select c.*,
        case
            when c.name_state = 'active' then 'known'
            -- An observed registry knows what the call's own selection offered, whatever the clocks say.
            when c.is_offered and not o.is_declared then 'known'
            when c.name_state = 'retired' then 'retired'
            when o.since is null or c.started_at < o.since then null
            when c.name_state = 'ambiguous' or m.call_key is not null then 'near_miss'
            else 'unknown'
        end as name_class,
        -- Proposed, never run, and not on the whole menu that the model saw: there was nothing to run.
        not c.has_run and c.has_menu and not c.is_offered as is_not_found
    from call_rows c
    left join opened o on o.project = c.project
    left join near_miss m on m.project = c.project and m.call_key = c.call_key
),
finished as (
    select *,
        case
            when has_failed or is_not_found then false
            when has_finished then true
        end as is_ok
    from judged
)
select
    project,
    call_key,
    event_id,
    selection_id,
    trace_id,
    any_session_id as session_id,
    any_agent as agent,
    any_model as model,
    any_environment as environment,
    any_release as release,
    strategy,
    weights_version,
    embedding_version,
    language,
    skill_id,
    registry_skill_id,
    domain,
    call_id,
    started_at as time,
    hour_of(started_at) as hour,
    started_at,
    time_is_receipt,
    latency_ms,
    is_ok as ok,
    if(is_ok = false, coalesce(error_kind, if(is_not_found, 'not_found', 'other')), null) as error_kind,
    if(is_ok = false, error_message, null) as error_message,
    attempts,
    retryable,
    arguments,
    args_keys,
    args_digest,
    depth,
    parent_call_id,
    ordinal,
    phases,
    name_class,
    if(has_selection and has_candidates, not is_offered, null) as off_list,
    case
        when argument_names is not null and args_keys is not null
        then list_filter(args_keys, lambda k: not list_contains(argument_names, k))
    end as unknown_arguments,
    received_at
from finished;
