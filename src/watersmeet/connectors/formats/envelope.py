"""Debezium's format name, and the reasons why a record is bad; without Spark, for the test harness too."""

from __future__ import annotations

DEBEZIUM = "debezium-json"

NO_OP = "not a change record of Debezium: it has no op"
TRUNCATED = "op t empties the table (TRUNCATE) and names no row"
NO_KEY = "op d without before, and the record has no key"
REPLICA_IDENTITY = "set REPLICA IDENTITY FULL on the table, or use mode = 'versioned_kv'"


def value_format(format: str) -> str:
    """Return the format whose options (``json.…``) apply to the rows within records of ``format``."""
    return "json" if format == DEBEZIUM else format
