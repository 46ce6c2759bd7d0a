-- What is measured of one list, by the ranks at which it has the skills that were expected; null: it lacks that one.
create macro recall_at(ranks, k) as len(list_filter(ranks, lambda r: r <= k)) / len(ranks);
create macro reciprocal_rank(ranks) as coalesce(1 / list_min(ranks), 0.0);
create macro discounted_gain(ranks) as coalesce(list_sum(list_transform(ranks, lambda r: 1 / log2(r + 1))), 0.0);
create macro ndcg_at(ranks, k) as
    discounted_gain(list_filter(ranks, lambda r: r <= k)) / discounted_gain(range(1, least(len(ranks), k) + 1));

-- Queries are the same that are equal but for the space around them.
create macro bare_query(query) as trim(query, E' \t\r\n');

-- One row a label: imported for a query, or told by feedback on one selection.
create table if not exists fact_labels (
    project varchar, query varchar, expected varchar[], language varchar, cluster varchar, labelled_at double
);
create view labels as
select project, to_timestamp(labelled_at) as time, bare_query(query) as query, null::varchar as selection_id, expected,
    language, cluster, 'import' as source, null::varchar as annotator
from fact_labels
union all by name
select f.project, f.time, bare_query(s.query) as query, f.target_selection_id as selection_id, f.expected,
    s.language, null::varchar as cluster, f.source, f.annotator
from feedback f
left join selections s on s.project = f.project and s.event_id = f.target_selection_id
where f.kind = 'label' and len(f.expected) > 0;

-- One row a ranked selection that a label speaks of, and where its list has the skills that were expected. A label of
-- the selection itself beats one of its query, the newest the older ones; those of judges count where there is no other.
create view judgements as
with own as (
    select project, selection_id,
        arg_max(expected, (time, expected)) filter (source is distinct from 'judge') as told,
        arg_max(expected, (time, expected)) filter (source = 'judge') as judged
    from labels
    where selection_id is not null
    group by project, selection_id
),
by_query as (
    select project, query, any_value(expected) as told, any_value(language) as language, any_value(cluster) as label_cluster
    from labels
    where selection_id is null
    group by project, query
),
-- With nothing in them, these inner joins look at no selection.
spoken_of as (
    select project, selection_id as event_id from own
    union
    select s.project, s.event_id
    from selections s
    join by_query q on q.project = s.project and q.query = bare_query(s.query)
),
labelled as (
    select s.project, s.event_id, s.time, s.hour, s.agent, s.model, s.environment, s.release, s.strategy, s.weights_version,
        s.embedding_version, s.candidates, coalesce(s.language, q.language) as language, q.label_cluster,
        coalesce(bare_query(s.query), s.event_id) as query,
        coalesce(o.told, q.told, o.judged) as expected,
        coalesce(o.told, q.told) is null as from_judge
    from selections s
    join spoken_of using (project, event_id)
    left join own o on o.project = s.project and o.selection_id = s.event_id
    left join by_query q on q.project = s.project and q.query = bare_query(s.query)
    where s.ranked
),
-- What was listed and what was expected, by the ids of their entries as of the selection.
named as (
    select project, event_id, time, unnest(candidates).skill_id as called,
        unnest(range(1, len(candidates) + 1)) as rank
    from labelled
    union all
    select project, event_id, time, unnest(expected) as called, null as rank from labelled
),
meant as (
    select s.project, s.event_id, coalesce(n.skill_id, s.called) as skill_id, min(s.rank) as rank,
        bool_or(s.rank is null) as is_expected
    from named s
    left join registry_names n
        on n.project = s.project and n.called = s.called and s.time >= n.valid_from and s.time < n.valid_to
    group by all
),
found as (
    select project, event_id, list(skill_id order by skill_id) as expected, list(rank order by skill_id) as ranks
    from meant
    where is_expected
    group by project, event_id
)
select l.project, l.event_id, l.time, l.hour, l.query, l.agent, l.model, l.environment, l.release, l.language, l.label_cluster,
    l.strategy, l.weights_version, l.embedding_version, l.from_judge, f.expected, f.ranks
from labelled l
join found f using (project, event_id);
