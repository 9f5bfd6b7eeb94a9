"""The cache: what can be made again, kept where the system keeps such things."""

import os
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """$SIMGRAD_CACHE, or the system's own place (on Linux ~/.cache/simgrad)."""
    chosen = os.environ.get("SIMGRAD_CACHE")
    return Path(chosen) if chosen else platformdirs.user_cache_path("simgrad", appauthor=False)
