select *, reciprocal_rank(ranks) as value, query as unit from judgements where $judge or not from_judge
