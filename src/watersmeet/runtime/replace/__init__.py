"""A stopped query goes on as another one: with its state, or as a new version beside it (docs/design/2026-11-27-replacing-a-query.md)."""
