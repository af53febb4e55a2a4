"""Aggregates over changelogs: what is added up, what is kept, and the kernel."""
