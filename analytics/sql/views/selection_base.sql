-- Selections before what others tell of them. Where a fact has a role (`run`, `retrieval`), `asides.sql` makes them
-- selections: it takes out what is none, and fills in what others tell.
-- `is_menu`: the candidates are the whole menu, which had no order of its own. `ranked_at`: when a retrieval ranked it.
-- `unit`: for rows that go into a segment (see `units.py`).
create table selection_base as
select *,
    -- Not one that was cut at the limit.
    coalesce(not ranked and len(candidates) between 1 and 199, false) as is_menu,
    null::timestamptz as ranked_at,
    null::ubigint as unit
from told_selections;

-- What is no selection by itself.
create table asides (project varchar, event_id varchar);

-- What the runs of their traces tell of calls.
create table call_fills (
    project varchar, event_id varchar, session_id varchar, agent varchar, model varchar, environment varchar,
    release varchar
);
