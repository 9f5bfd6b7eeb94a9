"""Other people's checkpoints: read, and written back."""
