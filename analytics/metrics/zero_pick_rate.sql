select *, n_picks = 0 as hit from selections where not closing
