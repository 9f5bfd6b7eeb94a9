"""The page in a browser: search, an objective on a batch, runs side by side, questions."""
