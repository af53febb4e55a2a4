"""Embedded streams: durable append-only logs in the workspace."""
