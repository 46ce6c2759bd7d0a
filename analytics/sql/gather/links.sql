-- The scopes of every unit, by which new facts find it and its own are found again, and the days of its facts.
create or replace table linked as
select e.b as scope, any_value(u.unit) as unit, any_value(e.project) as project, min(e.date) as since,
    max(e.date) as until
from edges e
join scope_units u on u.scope = e.b
group by e.b;
