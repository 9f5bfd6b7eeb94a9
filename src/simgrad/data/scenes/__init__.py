"""The embedded world: drawn scenes with captions, and exact knowledge of which is true."""
