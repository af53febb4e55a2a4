"""A query as a tree of joins, and what follows from its conditions."""
