select *, coalesce(no_match, false) as hit from selections where ranked or no_match is not null
