"""Checkpoints that the papers' own code wrote ("published", here and everywhere in this room), read
into our models: one file a model, `checkpoints` finds out which."""
