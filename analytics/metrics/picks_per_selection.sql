select *, n_picks as value from selections where not closing
