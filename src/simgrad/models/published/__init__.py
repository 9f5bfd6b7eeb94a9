"""Checkpoints as the papers' own code writes them, read into our models."""
