select *, skill_id as skill, name_class = 'retired' as hit from calls where name_class is not null
