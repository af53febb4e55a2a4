"""What a query's state holds as relations of DuckDB, and SELECTs over them.

Whoever writes such a SELECT may see the state and nothing else: the database reads no files, loads no extensions, and
its settings cannot be changed.  Rows are copied into it segment by segment; what does not fit into its memory is
written to a temporary folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa

from watersmeet.arrow_rows import python_values
from watersmeet.columns import RID, TIME
from watersmeet.errors import BindError, ConfigError, SqlSyntaxError, did_you_mean
from watersmeet.kernels.row_bytes import row_bytes_sql
from watersmeet.runtime.inspection.facts import fact_tables
from watersmeet.runtime.inspection.stored_query import Bucket, StoredQuery
from watersmeet.state.segments import Segment, read_segment

#: The relations that manifests tell, and those for which segments are read.
FACTS, STORED = ("segments", "buckets", "inputs", "counters"), ("rows", "keys")
RELATIONS = (*FACTS, *STORED)

_ROWS = """CREATE TABLE rows (operator VARCHAR, kind VARCHAR, relation VARCHAR, input VARCHAR, bucket INTEGER,
segment VARCHAR, id BIGINT, "time" TIMESTAMP, t BIGINT, bytes BIGINT, "key" JSON, "row" JSON)"""
_KEYS = """CREATE TABLE keys AS SELECT operator, kind, relation, input, "key", count(*) AS rows,
sum(bytes)::BIGINT AS bytes, min("time") AS oldest, max("time") AS newest
FROM rows WHERE "key" IS NOT NULL GROUP BY ALL"""
#: The microseconds of the years 1 to 9999, which are those that Python can show (as in facts.py).
_TIMES = "-62135596800000000 AND 253402300799999999"
_SETTINGS: dict[str, str | int | float | list[str]] = {
    "memory_limit": "1GB",
    "threads": 2,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
_ARRIVING = "arriving"
_BATCH_ROWS = 10_000


def check_relation(name: str) -> None:
    """Raise ``ConfigError`` if there is no such relation."""
    if name not in RELATIONS:
        raise ConfigError(
            f"state has no relation {name}", hint=did_you_mean(name, RELATIONS) or f"it has {', '.join(RELATIONS)}"
        )


@dataclass(slots=True)
class StateDatabase:
    """A database; ``names`` are its tables, by the name of a query and of a relation."""

    connection: duckdb.DuckDBPyConnection
    names: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, name: str, query: StoredQuery, relations: Sequence[str]) -> None:
        """Add relations of a query; ``CheckpointError`` if segments are missing or damaged."""
        for relation in relations:
            check_relation(relation)
        schema = f"q{len({known for known, _ in self.names})}"
        self.connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        self.connection.execute(f"CREATE SCHEMA {schema}")
        self.connection.execute(f"USE {schema}")
        facts = fact_tables(query)
        for relation in relations:
            if relation in FACTS:
                with self._arriving(facts[relation]):
                    self.connection.execute(f"CREATE TABLE {relation} AS SELECT * FROM {_ARRIVING}")
        if any(relation in STORED for relation in relations):
            self.connection.execute(_ROWS)
            for bucket in query.buckets:
                for segment in bucket.manifest.segments:
                    self._add_rows(bucket, segment)
        if "keys" in relations:
            self.connection.execute(_KEYS)
        self.names.update({(name, relation): f"{schema}.{relation}" for relation in relations})

    def lock(self) -> None:
        """Shut the database off from all else; do it before any SELECT of a user."""
        self.connection.execute("SET enable_external_access = false")
        self.connection.execute("SET lock_configuration = true")

    def select(self, sql: str, parameters: Sequence[object] = ()) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The columns and rows of one SELECT; raises ``SqlSyntaxError`` and ``BindError`` with what DuckDB says."""
        with _failures():
            statements = self.connection.extract_statements(sql)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise BindError("only a SELECT can read state(…)", hint="write one SELECT, or WITH … SELECT")
            relation = self.connection.sql(sql, params=list(parameters))
            reader = relation.to_arrow_reader(_BATCH_ROWS)
            return reader.schema, _batches(reader)

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """All rows of a SELECT that has few."""
        _, batches = self.select(sql, parameters)
        return [row for batch in batches for row in plain_rows(batch)]

    def _add_rows(self, bucket: Bucket, segment: Segment) -> None:
        stored, operator = read_segment(bucket, segment), bucket.operator
        names = stored.column_names
        # columns are told apart by case, which DuckDB does not do
        plain = stored.rename_columns([f"c{number}" for number in range(len(names))])
        keys = [names.index(name) for name in operator.key_columns(names)]
        others = [number for number, name in enumerate(names) if name not in (TIME, RID)]
        time, id = f"c{names.index(TIME)}", f"c{names.index(RID)}" if RID in names else "NULL"
        shown = "NULL" if operator.counts_rows else _moment(time)
        given: list[object] = [operator.name, operator.kind, segment.relation, operator.input_of(segment.relation)]
        given += [bucket.number, segment.id, *(operator.label(names[number]) for number in (*keys, *others))]
        sql = (
            f"INSERT INTO rows SELECT ?, ?, ?, ?, ?, ?, {id}, {shown}, {time}, {row_bytes_sql(plain.schema)}, "
            f"{_object(keys)}, {_object(others)} FROM {_ARRIVING}"
        )
        with self._arriving(plain):
            self.connection.execute(sql, given)

    @contextmanager
    def _arriving(self, table: pa.Table) -> Iterator[None]:
        self.connection.register(_ARRIVING, table)
        try:
            yield
        finally:
            self.connection.unregister(_ARRIVING)


@contextmanager
def state_database() -> Iterator[StateDatabase]:
    """Open an empty database, which is gone at the end."""
    with TemporaryDirectory(prefix="watersmeet-state-") as folder:
        connection = duckdb.connect(":memory:", config={**_SETTINGS, "temp_directory": folder})
        try:
            connection.execute("SET TimeZone = 'UTC'")
            yield StateDatabase(connection)
        finally:
            connection.close()


def _moment(time: str) -> str:
    """SQL for an event time as a time; NULL for those that cannot be shown, and bounds that stand for none."""
    return f"CASE WHEN {time} BETWEEN {_TIMES} THEN make_timestamp({time}) END"


def _object(columns: Sequence[int]) -> str:
    """SQL for a JSON object of columns, whose names are parameters; NULL if there are none."""
    return f"json_object({', '.join(f'?, c{number}' for number in columns)})" if columns else "NULL"


def plain_rows(batch: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
    """The rows of a batch, by position: two columns may have one name.

    Raises ``BindError`` for values that Python does not have, such as times after the year 9999.
    """
    yield from zip(*(_values(name, batch.column(place)) for place, name in enumerate(batch.schema.names)), strict=True)


def _values(name: str, column: pa.Array) -> list[object]:
    try:
        return python_values(column)
    except (OverflowError, ValueError) as error:
        raise BindError(
            f"the values of column {name} ({column.type}) cannot be shown: {error}",
            hint="select it as text: CAST(… AS VARCHAR)",
        ) from None


def _batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    with _failures():
        yield from reader


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except duckdb.ParserException as error:
        raise SqlSyntaxError(f"DuckDB cannot read the query: {_sentence(error)}") from None
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise BindError(f"the query over state(…) cannot be carried out: {_sentence(error)}") from None


def _sentence(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
