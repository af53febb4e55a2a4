"""Streaming SQL under test: the notation, the harness, and the same cases on Spark."""
