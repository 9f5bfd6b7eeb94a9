"""Runs: recipe, run folder and device; joins models with data: encode, evaluate, mine, count."""
