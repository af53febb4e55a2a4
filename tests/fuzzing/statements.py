"""Random statements of every kind."""

from __future__ import annotations

import random

from tests.fuzzing.catalog import APPENDED, CHANGING, TARGETS
from tests.fuzzing.queries import SETTINGS, query

_TYPES = (
    "INT", "BIGINT", "STRING", "DOUBLE", "FLOAT", "BOOLEAN", "TINYINT", "SMALLINT", "DECIMAL(10, 2)", "DATE", "BINARY",
    "TIMESTAMP", "TIMESTAMP_NTZ", "ARRAY<STRING>", "MAP<STRING, INT>", "STRUCT<a: INT, b: ARRAY<DOUBLE>>", "CHAR(3)",
    "VARCHAR(10)", "INTERVAL", "VARIANT", "NOTHING", "DECIMAL(99, 100)", "TIMESTAMP WITH TIME ZONE",
)  # fmt: skip
_OPTIONS = (
    "connector = 'files'", "connector = 'kafka'", "connector = 'datagen'", "connector = 'print'", "connector = 'delta'",
    "connector = 'jdbc'", "connector = 'none'", "path = 'data'", "format = 'json'", "format = 'csv'", "topic = 't'",
    "format = 'debezium-json'", "properties = 'bootstrap.servers=b:9092;sasl.password=x'", "brokers = 'b:9092'",
    "event_time_unit = 's'", "event_time_unit = 'row'", "event_time_unit = 'ms'", "ordered_by = 'n'",
    "ordered_by = 'n, v + 1 DESC'", "ordered_by = 'n +'", "changelog = 'true'", "rows_per_second = 10",
    "url = 'jdbc:postgresql://db/shop'", "table = 'a.b'", "password = '${env:P}'", "format = 'avro'", "a.b.c = TRUE",
    "kafka.max.poll.records = 5", "header = 'maybe'", "path = ''", "bucket_count = -1.5", "lookup_cache_rows = 1e99",
)  # fmt: skip
_NAMES = ("orders", "new_stream", "x", "`odd name`", "`select`", "Äpfel", "table", "a.b", "1st", "`a``b`", "tiers")


def statement(rng: random.Random) -> str:
    """A statement, without a semicolon; most are queries."""
    draw = rng.random()
    if draw < 0.7:
        return query(rng)
    if draw < 0.76:
        return f"INSERT INTO {_name(rng)}{_columns_of_insert(rng)} {query(rng)}"
    if draw < 0.78:
        return f"{_create(rng, bare=True)} AS {query(rng)}"
    if draw < 0.81:
        return f"EXPLAIN {_set(rng) if rng.random() < 0.2 else statement(rng)}"
    if draw < 0.84:
        return _set(rng)
    if draw < 0.92:
        return _create(rng)
    if draw < 0.95:
        return _stored(rng)
    if draw < 0.97:
        return f"INSERT INTO {_name(rng)}{_columns_of_insert(rng)} VALUES {', '.join(_row(rng) for _ in range(2))}"
    return _small(rng)


def _name(rng: random.Random) -> str:
    return rng.choice(rng.choice((TARGETS, TARGETS, _NAMES)))


def _columns_of_insert(rng: random.Random) -> str:
    return rng.choice(("", "", "", " (c0)", " (c0, c1)", " (c1, c1)", " (nothing)"))


def _row(rng: random.Random) -> str:
    values = (
        "1",
        "'a'",
        "NULL",
        "TIMESTAMP'2026-01-01 10:00:00'",
        "1 + 1",
        "array(1)",
        "-1",
        "upper('x')",
        "CAST(1 AS INT)",
    )
    return f"({', '.join(rng.choices(values, k=rng.choice((1, 2, 3))))})"


def _create(rng: random.Random, *, bare: bool = False) -> str:
    kind = rng.choice(("STREAM", "STREAM", "STREAM", "MUTABLE STREAM", "TABLE"))
    name = f"{rng.choice(('', '', 'IF NOT EXISTS '))}{rng.choice(_NAMES)}"
    names = ["id", "ts", "n", "timestamp", "_tp_time", "`a b`", "iD", "value"]
    chosen = rng.sample(names, rng.choice((1, 2, 3, 4)))
    items = [
        f"{column} {rng.choice(('TIMESTAMP', 'BIGINT') if column in ('ts', 'n') else _TYPES)}" for column in chosen
    ]
    if rng.random() < 0.5:
        column = rng.choice(chosen)
        delays = ("", " - INTERVAL '5' SECONDS", " - 10", " - 2.5", " - INTERVAL '1' MONTH", " - 0x10", " - 1e400")
        items.append(f"WATERMARK FOR {column} AS {column}{rng.choice(delays)}")
    if rng.random() < 0.2:
        items.append(f"PRIMARY KEY ({', '.join(rng.choices(chosen, k=rng.choice((1, 2))))})")
    body = f" ({', '.join(items)})" if not bare or rng.random() < 0.1 else ""
    key = f" PRIMARY KEY ({rng.choice(chosen)})" if rng.random() < 0.3 else ""
    options = f" WITH ({', '.join(rng.sample(_OPTIONS, rng.choice((1, 2, 3, 4))))})" if rng.random() < 0.5 else ""
    modes = ("mode = 'versioned_kv'", "mode = 'changelog_kv'", "mode = 'append'", "mode = 1", rng.choice(SETTINGS))
    settings = f" SETTINGS {rng.choice(modes)}" if rng.random() < 0.3 else ""
    return f"CREATE {kind} {name}{body}{key}{options}{settings}"


def _set(rng: random.Random) -> str:
    inserts = []
    for _ in range(rng.choice((1, 2, 2, 3))):
        many = rng.random() < 0.7
        inserts.append(f"INSERT INTO {_name(rng)} {_shareable(rng) if many else query(rng)};")
    return f"EXECUTE STATEMENT SET BEGIN {' '.join(inserts)} END"


def _shareable(rng: random.Random) -> str:
    """A query of joins by one key, as a set takes them."""
    span = rng.choice((1, 10, 60))
    one, *others = rng.choices(APPENDED["timestamp"], k=rng.choice((2, 3)))
    joins = " ".join(
        f"{rng.choice(('JOIN', 'LEFT JOIN'))} {other} $r{i} ON «$a.id = $r{i}.id» WITHIN INTERVAL '{span}' MINUTES"
        for i, other in enumerate(others)
    )
    return f"SELECT $a.id AS c0, $r0.cust AS c1 FROM {one} $a {joins}{rng.choice(('', ' WHERE «$a.v > 1»'))}"


def _stored(rng: random.Random) -> str:
    name = rng.choice((*APPENDED["timestamp"], *CHANGING["timestamp"], "customers", "unknown"))
    where = rng.choice(
        ("", " WHERE v > 1", " GROUP BY v ORDER BY 1 LIMIT 3", " EMIT FINAL", " WITHIN INTERVAL '1' DAY")
    )
    other = rng.choice(
        ("", f" JOIN table({name}) AS t2 ON t2.id = id", f" JOIN {name} ON TRUE", ", LATERAL (SELECT 1)")
    )
    head = rng.choice(("", "", "WITH w AS (SELECT * FROM table(orders)) ", "INSERT INTO target "))
    return f"{head}SELECT count() AS c0, max(v) AS c1 FROM table({name}){other}{where}"


def _small(rng: random.Random) -> str:
    name = rng.choice(_NAMES)
    return rng.choice(
        (
            "SHOW STREAMS", "SHOW TABLES", "SHOW QUERIES", f"SHOW CREATE STREAM {name}", f"SHOW CREATE TABLE {name}",
            f"DESCRIBE {name}", f"DESCRIBE STREAM {name}", f"DROP STREAM IF EXISTS {name}", f"DROP TABLE {name}",
            f"CREATE INDEX i ON {rng.choice(('tiers', name))} (v, {rng.choice(('n', 'nothing'))})",
            f"CREATE INDEX IF NOT EXISTS by_v ON {name} (v)", f"DROP INDEX IF EXISTS by_v ON {name}",
            f"DROP INDEX by_v ON {name}", f"STOP QUERY {name}", "SHOW", "DROP", "UPDATE orders SET v = 1",
        )
    )  # fmt: skip
