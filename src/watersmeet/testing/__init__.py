"""Streaming SQL under test: the notation, the harness, and the reference join."""
