select *, fallback as hit from selections where ranked
