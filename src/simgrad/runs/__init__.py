"""Runs: recipe, run folder, provenance: what lies on disk."""
