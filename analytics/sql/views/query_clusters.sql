-- One row a distinct query that the nightly job has looked at. It is joined to selections by `md5(query)` when it is asked
-- for: clusters come long after the selections that they are of.
create table query_clusters as
with placed as (
    select * from fact_query_clusters
    qualify row_number() over (
        partition by project, query_key order by computed_at desc nulls last, cluster_id
    ) = 1
),
standing as (
    select project, cluster_id, name from fact_clusters
    qualify row_number() over (partition by project, cluster_id order by computed_at desc nulls last, queries desc, name
    ) = 1
)
select p.project, p.date, p.time, p.computed_at, p.query_key, p.cluster_id, s.name as cluster_name, p.embedding_version
from placed p
left join standing s using (project, cluster_id);
