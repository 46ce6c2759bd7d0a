select *, ndcg_at(ranks, 10) as value, query as unit from judgements where $judge or not from_judge
