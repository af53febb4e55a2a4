"""Aggregates over append-only streams and changelogs: the functions, what they store, and the kernel."""
