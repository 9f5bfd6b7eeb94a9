"""The cache: what can be made again, kept where the system keeps such things."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """$SIMGRAD_CACHE, or the system's own place (on Linux ~/.cache/simgrad)."""
    chosen = os.environ.get("SIMGRAD_CACHE")
    if chosen:
        return Path(chosen)
    import platformdirs

    return platformdirs.user_cache_path("simgrad", appauthor=False)
