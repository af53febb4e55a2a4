"""A stopped query goes on as another one: with its state, or as a new version that begins beside it."""
