"""The streams and tables that random statements are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from watersmeet.bind.define import define_stream, define_table
from watersmeet.bind.indexes import with_index
from watersmeet.catalog.streams import StreamDef
from watersmeet.lookup.source import LookupSource
from watersmeet.lookup.tables import table_schema
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import CreateIndex, CreateStream, CreateTable
from watersmeet.testing.tables import HeldTable

_COLUMNS = "id INT, cust STRING, v INT, n BIGINT, amount DOUBLE"

#: Streams of one kind of time, in any order; those that append come first.
APPENDED = {"timestamp": ("orders", "payments", "clicks"), "row": ("seqs", "counts"), "s": ("early", "later")}
CHANGING = {"timestamp": ("tiers", "rates", "quotes"), "row": (), "s": ("stock",)}
TABLES = ("customers", "parts")
TARGETS = ("target", "changes", "files_out")

_SCRIPT = f"""
CREATE STREAM orders ({_COLUMNS}, expires TIMESTAMP, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS);
CREATE STREAM payments ({_COLUMNS}, tags ARRAY<STRING>, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE);
CREATE STREAM clicks ({_COLUMNS}, ts TIMESTAMP, WATERMARK FOR ts AS ts);
CREATE STREAM seqs ({_COLUMNS}, ts BIGINT, WATERMARK FOR ts AS ts - 10) WITH (event_time_unit = 'row');
CREATE STREAM counts ({_COLUMNS}, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 'row');
CREATE STREAM early ({_COLUMNS}, ts BIGINT, WATERMARK FOR ts AS ts - 5) WITH (event_time_unit = 's');
CREATE STREAM later ({_COLUMNS}, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM trades ({_COLUMNS}, ts TIMESTAMP) WITH (connector = 'datagen', ordered_by = 'n, v DESC');
CREATE STREAM logs ({_COLUMNS});
CREATE MUTABLE STREAM tiers ({_COLUMNS}, ts TIMESTAMP) PRIMARY KEY (cust);
CREATE STREAM rates ({_COLUMNS}, ts TIMESTAMP, WATERMARK FOR ts AS ts) PRIMARY KEY (id)
  SETTINGS mode = 'versioned_kv';
CREATE STREAM quotes ({_COLUMNS}, ts TIMESTAMP, WATERMARK FOR ts AS ts) PRIMARY KEY (id, cust)
  SETTINGS mode = 'changelog_kv';
CREATE STREAM stock ({_COLUMNS}, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's') PRIMARY KEY (id)
  SETTINGS mode = 'changelog_kv';
CREATE INDEX by_v ON tiers (v, n);
CREATE TABLE customers ({_COLUMNS}) WITH (connector = 'jdbc', url = 'jdbc:postgresql://db/shop', table = 'customers');
CREATE TABLE parts ({_COLUMNS}) WITH (connector = 'files', path = 'parts.parquet');
CREATE STREAM target (c0 STRING, c1 STRING);
CREATE STREAM changes (c0 STRING, c1 STRING)
  WITH (connector = 'files', path = 'changes', format = 'json', changelog = 'true');
CREATE STREAM files_out (c0 STRING) WITH (connector = 'files', path = 'out', format = 'json');
"""


@cache
def streams() -> Mapping[str, StreamDef]:
    """All of them, by name."""
    found: dict[str, StreamDef] = {}
    for statement in parse(_SCRIPT):
        match statement:
            case CreateStream():
                made = define_stream(statement)
            case CreateTable():
                made = define_table(statement)
            case CreateIndex(stream=name):
                made = with_index(found[name], statement)
            case _:
                raise AssertionError(statement)
        found[made.name] = made
    return found


def open_table(table: StreamDef, columns: Sequence[str]) -> LookupSource:
    """An external table without rows."""
    return HeldTable(table.name, table_schema(table, columns), {})
