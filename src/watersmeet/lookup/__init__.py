"""Lookups: rows of an outside table, asked for as events need them and kept for a while."""
