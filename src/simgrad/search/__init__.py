"""Vectors to hits: an index, exact or approximate, and how sure a hit is."""
