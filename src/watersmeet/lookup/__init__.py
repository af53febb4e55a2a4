"""Lookups in external tables: rows are queried when events need them, and cached for a while."""
