"""Debezium's format by name, and what can be wrong with its records; free of Spark, for the test harness too."""

from __future__ import annotations

DEBEZIUM = "debezium-json"

NO_OP = "not a change record of Debezium: it has no op"
TRUNCATED = "op t empties the table (TRUNCATE), and names no row that it takes away"
NO_KEY = "op d without before, and the record has no key"
REPLICA_IDENTITY = "set REPLICA IDENTITY FULL on the table, or use mode = 'versioned_kv'"


def value_format(format: str) -> str:
    """The format whose options (``json.…``) are those of the rows within records of ``format``."""
    return "json" if format == DEBEZIUM else format
