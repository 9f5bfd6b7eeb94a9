"""Studies: many runs, one table; tuning; the papers' published numbers."""
