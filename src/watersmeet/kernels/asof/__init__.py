"""Joins as of a time: ASOF joins, and joins with the version of a table that holds at a row's time, or now."""
