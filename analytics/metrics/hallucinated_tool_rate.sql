select *, skill_id as skill, name_class in ('unknown', 'near_miss') as hit from calls where name_class is not null
