select *, n_picks > 6 as hit from selections where not closing
