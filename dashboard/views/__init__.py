"""One module a page; each has ``page(scope)``."""
