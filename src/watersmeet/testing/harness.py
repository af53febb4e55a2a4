"""The test harness: a whole query in one process, without Spark, one step at a time.

It plans the query as Spark's runtime does and runs the very same packing, operators, state and frontiers; only the
row-wise expressions (filters, computed columns, the SELECT list) are evaluated by DuckDB in place of Spark.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import duckdb
import pyarrow as pa
from sqlglot import exp

from watersmeet.catalog import StreamDef
from watersmeet.columns import BAD, RAW, SEQUENCE, TIME, TP_DELTA, TP_TIME, WEIGHT
from watersmeet.engine.events import Event
from watersmeet.engine.frames import Frame, FrameKind, decode_table
from watersmeet.engine.host import process
from watersmeet.engine.pack import pack
from watersmeet.engine.routing import NULL_HASH
from watersmeet.errors import BindError, CatalogError, UnsupportedError, did_you_mean
from watersmeet.kernels.api import quote
from watersmeet.plan.arrow_types import arrow_type
from watersmeet.plan.logical import Input
from watersmeet.plan.physical import PhysicalInput, PhysicalPlan, plan
from watersmeet.plan.times import TimeUnit
from watersmeet.sql.bind import bind
from watersmeet.sql.define import check_target, define_stream
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import CreateStream, InsertSelect, Query, Select
from watersmeet.state.store import MemoryStore
from watersmeet.state.working_set import WorkingSets
from watersmeet.testing.cells import Value
from watersmeet.testing.raw import decode_json

Row = tuple[Value, ...]


@dataclass(slots=True)
class StepInput:
    """Rows for one stream, in the order of its declared columns, then records as raw text in its format."""

    rows: Sequence[Row] = ()
    raw: Sequence[str] = ()


@dataclass(slots=True)
class StepOutcome:
    """What a step brought: changes with their weights, rows set aside, and cumulative counters."""

    changes: list[tuple[int, Row]] = field(default_factory=list)
    side: list[dict[str, str]] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)

    def count(self, what: str, stream_inputs: Sequence[str] = ()) -> int:
        """The sum of a counter over operators, for some inputs (by alias) or for all."""
        total = 0
        for name, value in self.counters.items():
            _, counter, *source = name.split(".", 2)
            if counter == what and (not source or not stream_inputs or source[0] in stream_inputs):
                total += value
        return total


def load_script(script: str) -> tuple[dict[str, StreamDef], Query]:
    """The streams that a script creates, by lower-case name, and its one query (which must come last)."""
    streams: dict[str, StreamDef] = {}
    query: Query | None = None
    for statement in parse(script):
        match statement:
            case CreateStream(query=None):
                stream = define_stream(statement)
                if stream.name.lower() in streams:
                    raise CatalogError(f"there is a stream {stream.name} already", position=statement.position)
                streams[stream.name.lower()] = stream
            case CreateStream(query=found) | InsertSelect(query=found) | Select(query=found) if found is not None:
                query = found
                if isinstance(statement, InsertSelect):
                    _check_insert(statement, streams)
            case _:
                raise UnsupportedError(
                    "a test takes CREATE STREAM statements and one query", position=statement.position
                )
    if query is None:
        raise UnsupportedError("a test needs a query after its CREATE STREAM statements")
    return streams, query


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    """One database for all row-wise expressions of this process: opening one takes longer than a case."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@cache
def _working_sets(memory_limit: str | None) -> WorkingSets:
    return WorkingSets(most_bytes=1 << 30, memory_limit=memory_limit)


def _check_insert(statement: InsertSelect, streams: Mapping[str, StreamDef]) -> None:
    target = streams.get(statement.stream.lower())
    if target is None:
        known = [stream.name for stream in streams.values()]
        raise CatalogError(
            f"there is no stream {statement.stream}",
            hint=did_you_mean(statement.stream, known),
            position=statement.position,
        )
    check_target(target, [column.name for column in bind(statement.query, streams).outputs], statement)


class Harness:
    """One running query over given streams; ``step`` feeds it a batch."""

    def __init__(
        self, streams: Mapping[str, StreamDef], query: Query, *, buckets: int = 2, memory_limit: str | None = None
    ) -> None:
        self.streams = streams
        self._working_sets = _working_sets(memory_limit)
        self._buckets = tuple(range(buckets))
        self._plan = plan(bind(query, streams))
        self._stores: dict[tuple[str, int], MemoryStore] = defaultdict(MemoryStore)
        self._connection = _connection()
        self._rows_seen: Counter[str] = Counter()
        schemas = [self._project(part, StepInput()).schema for part in self._plan.inputs]
        self._packs = [replace(spec, has_bad=True) for spec in self._plan.pack_specs(schemas, self._buckets)]
        self._operators = self._plan.operators(schemas, [("",)] * len(schemas), self._buckets)
        self._counters: dict[str, int] = {}
        self.restart()
        self._result(None)  # a mistake in the SELECT list shows now, not at the first row

    @property
    def plan(self) -> PhysicalPlan:
        """The query's plan."""
        return self._plan

    @property
    def column_names(self) -> list[str]:
        """The names of the result's columns."""
        return [column.name for column in self._plan.outputs]

    @property
    def column_types(self) -> list[str]:
        """Spark type names of the result's columns."""
        return [_spark_type(each.type) for each in self._result(None).schema if each.name != WEIGHT]

    @property
    def is_ordered(self) -> bool:
        """Whether results come in the order of ORDER BY."""
        return self._plan.query.ordering is not None

    def restart(self) -> None:
        """Forget everything that is not durable."""
        self._working_sets.forget()

    def step(self, inputs: Mapping[str, StepInput], events: Sequence[Event] = ()) -> StepOutcome:
        """Feed rows by stream name, then control events; what comes out comes back."""
        for name in inputs:
            if name.lower() not in self.streams:
                raise CatalogError(f"there is no stream {name}")
        by_name = {name.lower(): rows for name, rows in inputs.items()}
        frames: dict[int, list[Frame]] = defaultdict(list)
        for part, packing in zip(self._plan.inputs, self._packs, strict=True):
            rows = by_name.get(part.input.stream.name.lower())
            if rows is not None:
                frames[part.operator].extend(pack(self._project(part, rows).to_batches(), packing))
        for name, rows in by_name.items():
            self._rows_seen[name] += len(rows.rows) + len(rows.raw)
        outcome = StepOutcome()
        for event in events:
            for index, spec in enumerate(self._operators):
                frames[index] += [
                    Frame(bucket, 0, "", FrameKind.CONTROL, 0, event.to_json()) for bucket in spec.buckets
                ]
        results: list[Frame] = []
        for index, spec in enumerate(self._operators):
            by_bucket: dict[int, list[Frame]] = defaultdict(list)
            for frame in frames[index]:
                by_bucket[frame.bucket].append(frame)
            sent = []
            for bucket, arrived in sorted(by_bucket.items()):
                working_set = self._working_sets.get(spec.name, str(bucket))
                sent += process(spec, bucket, arrived, self._stores[spec.name, bucket], working_set)
            target = next((i for i, feed in self._feeds(index)), None)
            if target is None:
                results += sent
            else:
                frames[target] += sent
        self._collect(results, outcome)
        return outcome

    def _feeds(self, index: int) -> list[tuple[int, object]]:
        return [
            (i, feed) for i, stage in enumerate(self._plan.stages) for feed in stage.feeds if feed.operator == index
        ]

    def inputs_of(self, stream: str) -> tuple[str, ...]:
        """The aliases under which the query reads a stream."""
        named = stream.lower()
        return tuple(part.input.alias for part in self._plan.inputs if part.input.stream.name.lower() == named)

    # -- row-wise expressions, by DuckDB ---------------------------------------------------------------------------

    def _project(self, part: PhysicalInput, rows: StepInput) -> pa.Table:
        """The source's rows with all that packing and the operators need."""
        stream = part.input.stream
        table = _source_table(stream, rows, self._rows_seen[stream.name.lower()])
        items = [f"{_axis_sql(part.input)} AS {quote(TIME)}"]
        for name in part.carried:
            if name in part.hashes:
                continue
            if name == part.sequence:
                items.append(f"{SEQUENCE} AS {quote(name)}")
            else:
                items.append(f"{self._sql(part.computed.get(name) or _column(name), part.input)} AS {quote(name)}")
        items += [
            f"{self._hash(keys, part.input)} AS {quote(name)}"
            for name, keys in part.hashes.items()
            if name in part.routed_by or name in part.carried
        ]
        items.append(f'{self._sql(part.keep, part.input) if part.keep is not None else "TRUE"} AS "$keep"')
        items += [f'{BAD} AS "$bad"', f'{RAW} AS "$raw"']
        self._connection.register("source", table)
        try:
            return self._connection.sql(f"SELECT {', '.join(items)} FROM source").to_arrow_table()
        except duckdb.Error as error:
            raise BindError(
                f"an expression over {stream.name} cannot be evaluated: {str(error).splitlines()[0]}"
            ) from None
        finally:
            self._connection.unregister("source")

    def _hash(self, keys: list[exp.Expr], input: Input) -> str:
        operands = [self._sql(key, input) for key in keys]
        no_value = " AND ".join(f"({operand}) IS NULL" for operand in operands)
        return f"CASE WHEN {no_value} THEN {NULL_HASH} ELSE CAST(hash({', '.join(operands)}) >> 1 AS BIGINT) END"

    def _sql(self, expression: exp.Expr, input: Input) -> str:
        """DuckDB SQL of an expression over one input's declared columns."""

        def replace_column(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Column):
                return _column(input.declared(node.name))
            return node

        return expression.copy().transform(replace_column, copy=False).sql(dialect="duckdb")

    def _collect(self, results: list[Frame], outcome: StepOutcome) -> None:
        tables = [decode_table(frame.payload) for frame in results if frame.kind is FrameKind.ROWS]
        told: Counter[str] = Counter()
        for frame in results:
            if frame.kind is FrameKind.SIDE:
                outcome.side += decode_table(frame.payload).to_pylist()
            elif frame.kind is FrameKind.COUNTER:
                told[frame.part] += frame.frontier
        # all buckets of an operator tell their counters, cumulative, or none does
        self._counters.update(told)
        outcome.counters = dict(self._counters)
        result = self._result(pa.concat_tables(tables) if tables else None)
        weights = result[WEIGHT].to_pylist()
        columns = [column.to_pylist() for column in result.drop_columns([WEIGHT]).columns]
        outcome.changes = list(zip(weights, zip(*columns, strict=True), strict=True))

    def _result(self, changes: pa.Table | None) -> pa.Table:
        """The SELECT list over the last operator's results, with ``$w`` last."""
        spec = self._operators[-1]
        self._connection.register("changes", spec.output.empty_table() if changes is None else changes)
        weight = f"CAST({quote(WEIGHT) if self._plan.weighted else 1} AS TINYINT)"
        restored = [f"{_restored_sql(input)} AS {quote(name)}" for name, input in self._plan.restored()]
        source = f"SELECT *, {', '.join([*restored, f'{weight} AS {quote(TP_DELTA)}'])} FROM changes"
        items = [f"{each.expression.sql(dialect='duckdb')} AS {quote(each.name)}" for each in self._plan.outputs]
        where = " AND ".join(f"({condition.sql(dialect='duckdb')})" for condition in self._plan.post_filters) or "TRUE"
        sql = f"SELECT {', '.join(items)}, {quote(TP_DELTA)} AS {quote(WEIGHT)} FROM ({source}) WHERE {where}"
        try:
            return self._connection.sql(sql).to_arrow_table()
        except duckdb.Error as error:
            written = ", ".join(each.expression.sql(dialect="spark") for each in self._plan.outputs).replace('"', "")
            reason = str(error).splitlines()[0]
            raise BindError(f"the SELECT list cannot be evaluated: {reason}", detail=written) from None
        finally:
            self._connection.unregister("changes")


def _column(name: str) -> exp.Expr:
    return exp.column(exp.to_identifier(name, quoted=True))


def _source_table(stream: StreamDef, rows: StepInput, seen: int) -> pa.Table:
    """Rows, then bad rows, with the hidden columns of a source."""
    types = [arrow_type(exp.DataType.build(column.type, dialect="spark")) for column in stream.columns]
    decoded, bad = decode_json(rows.raw, stream)
    good = [*rows.rows, *decoded]
    count = len(good) + len(bad)
    padded = [*good, *([(None,) * len(types)] * len(bad))]
    columns = {
        column.name: pa.array([row[i] for row in padded], type)
        for i, (column, type) in enumerate(zip(stream.columns, types, strict=True))
    }
    arrival = pa.array([seen] * count, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    columns.setdefault(TP_TIME, arrival)
    columns[SEQUENCE] = pa.array([(seen + i).to_bytes(8, "big") for i in range(count)], pa.binary())
    columns[BAD] = pa.array([None] * len(good) + [reason for _, reason in bad], pa.string())
    columns[RAW] = pa.array([None] * len(good) + [raw for raw, _ in bad], pa.string())
    return pa.table(columns)


def _axis_sql(input: Input) -> str:
    column = quote(input.time.column)
    if not input.time.unit.is_integer:
        return f"epoch_us({column})"
    return f"TRY_CAST(CAST({column} AS HUGEINT) * {input.time.unit.scale} AS BIGINT)"


def _restored_sql(input: Input) -> str:
    axis = quote(input.time_name)
    if input.time.unit is TimeUnit.TIMESTAMP:
        return f"CAST(make_timestamp({axis}) AS TIMESTAMPTZ)"
    declared = input.stream.column(input.time.column)
    assert declared is not None
    return f"CAST({axis} // {input.time.unit.scale} AS {declared.type})"


def _spark_type(kind: pa.DataType) -> str:
    """The Spark type name of a result column, for reading expected cells."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    names = {
        pa.bool_(): "BOOLEAN",
        pa.int8(): "TINYINT",
        pa.int16(): "SMALLINT",
        pa.int32(): "INT",
        pa.int64(): "BIGINT",
        pa.float32(): "FLOAT",
        pa.float64(): "DOUBLE",
        pa.date32(): "DATE",
        pa.binary(): "BINARY",
        pa.timestamp("us"): "TIMESTAMP_NTZ",
    }
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return "TIMESTAMP"
    return names.get(kind, "STRING")
