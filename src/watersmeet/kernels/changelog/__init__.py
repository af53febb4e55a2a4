"""Joins over changelogs and changing streams: results are emitted at once and retracted with their rows."""
