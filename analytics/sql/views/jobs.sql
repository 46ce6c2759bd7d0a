-- What jobs wrote, as they wrote it.
create table portraits as
select project, date, time, computed_at, skill_id, impressions, picks, skips, calls, finished, failed, error_kinds,
    latency_mean_ms, latency_p99_ms, confused_with
from fact_portraits
qualify row_number() over (partition by project, skill_id, date order by computed_at desc nulls last, time desc) = 1;

create table chains as
select project, date, time, computed_at, skills, sessions, support, confidence, lift, success, n, low, high, feasible,
    checks
from fact_chains;

create table skill_status as
select distinct project, date, time, skill_id, status, previous_status, reason, rollout_fraction, evidence
from fact_skill_status;

create table alerts as
select distinct project, date, time, alert_id, rule, grp, state, severity, metric, value, n, window_from, window_to,
    started_at, message
from fact_alerts;

create table weights as
select distinct project, date, time, version, skill_id, heat, heat_log, success, success_logit, n_effective, status,
    rollout_fraction
from fact_weights;

create table models as
select distinct project, date, time, version, decision, reason, sha256, features, evidence
from fact_models;
