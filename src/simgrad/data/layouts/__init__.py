"""Layouts on disk: one per file, registered; `registry.py` finds the one that a path has."""
