"""Each file measures us and a peer in the same run, and says what came of it."""
