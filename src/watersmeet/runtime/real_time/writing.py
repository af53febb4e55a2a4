"""From the results of operators to what Spark's query writes, for one query or for several that run as one.

Spark's query has one frame and one sink.  So all results pass through all steps in one row each: a column for each
query, of which one is not NULL.

    results ─ SELECT list, columns of the target (query by query) ─ tasks that write ─ Kafka
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from watersmeet.errors import UnsupportedError
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.runtime.metrics import RESULTS
from watersmeet.runtime.real_time.arrivals import Arrivals
from watersmeet.runtime.real_time.live_task import live_task
from watersmeet.runtime.real_time.operator_task import EPOCH, result_column
from watersmeet.runtime.real_time.sinks import ByKafka, ByTasks, LiveSink
from watersmeet.runtime.select_list import select_list

#: Whether a row is a result of the query whose columns it has.
IS_OWN = "_wm_is_own"


@dataclass(frozen=True, slots=True)
class Target:
    """The sink of a query, and how a run writes to it."""

    query: PhysicalPlan
    sink: LiveSink
    way: ByTasks | ByKafka


def written(results: DataFrame, targets: Sequence[Target]) -> DataStreamWriter:
    """Return what writes the results of each query to its target.

    ``results`` have ``_wm_epoch`` and ``result_column`` of each query.  Raises ``UnsupportedError`` for topics of
    several clusters, as Spark's query has one sink.
    """
    names = []
    for number, target in enumerate(targets):
        results, columns = _prepared(results, number, target)
        names.append(columns)
    results = results.observe(RESULTS, F.count(EPOCH).alias("rows_out"))
    for number, target in enumerate(targets):
        if isinstance(target.way, ByTasks):
            task = WriteTask(target.way.write, result_column(number), names[number])
            left = StructType([field for field in results.schema if field.name != task.column])
            results = results.mapInArrow(task.run, left)
    options = _options([target.way for target in targets if isinstance(target.way, ByKafka)])
    if options is None:
        return results.writeStream.format("noop")
    records = F.coalesce(*(F.col(name) for name in results.columns if name != EPOCH))
    rows = results.where(F.col(EPOCH).isNotNull()).select(records.alias("record")).select("record.*")
    return rows.writeStream.format("kafka").options(**options)


def _prepared(results: DataFrame, number: int, target: Target) -> tuple[DataFrame, tuple[str, ...]]:
    """The results of one query as its sink takes them, in the same column, and the names in it."""
    own = result_column(number)
    others = [name for name in results.columns if name != own]
    rows = results.select(f"{own}.*", F.col(own).isNotNull().alias(IS_OWN), *others)
    rows = target.sink.rows(select_list(target.query, rows, ~F.col(IS_OWN), also=(IS_OWN, *others)))
    names = tuple(rows.columns[: rows.columns.index(IS_OWN)])
    if isinstance(target.way, ByKafka):
        kept = rows.drop(IS_OWN, *(name for name in others if name != EPOCH))
        key, value, headers = target.way.record(kept, F.col(IS_OWN))
        topic = F.lit(target.way.topic).alias("topic")
        fields = [topic, key.cast("binary").alias("key"), value.cast("binary").alias("value"), headers.alias("headers")]
    else:
        # names may have a point, such as min(o.amount), and two columns one name
        numbered = [f"c{place}" for place in range(len(names))]
        rows, fields = rows.toDF(*numbered, IS_OWN, *others), [F.col(name) for name in numbered]
    return rows.select(*others, F.when(F.col(IS_OWN), F.struct(*fields)).alias(own)), names


def _options(ways: Sequence[ByKafka]) -> Mapping[str, str] | None:
    """The options of Spark's sink for all topics; None if there are none."""
    if not ways:
        return None
    first, *others = ways
    for each in others:
        if each.options != first.options:
            raise UnsupportedError(
                f"topics {_named(first)} and {_named(each)} have different options of Kafka's client"
                f" ({', '.join(_differing(first.options, each.options))}), and in real time one query of Spark writes"
                " all results of EXECUTE STATEMENT SET",
                hint="write to topics of one cluster, or leave out mode = 'real_time': micro-batches take it",
            )
    return first.options


def _named(way: ByKafka) -> str:
    return f"{way.topic} at {way.options['kafka.bootstrap.servers']}"


def _differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Writes the rows in one ``column``, all that have come together, under their own ``names``; all others pass."""

    write: Callable[[pa.Table], None]
    column: str
    names: tuple[str, ...]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The other rows, without the column, until the epoch ends."""
        with live_task():
            arrivals = Arrivals(batches)
            while arrived := arrivals.take():
                rows = pa.Table.from_batches(arrived).combine_chunks()
                is_own = rows[self.column].is_valid()
                own = rows.filter(is_own)
                if own.num_rows:
                    (structs,) = own[self.column].chunks
                    self.write(pa.table([*structs.flatten(), own[EPOCH]], names=[*self.names, EPOCH]))
                passing = rows.filter(pc.invert(is_own)).drop_columns([self.column])
                if passing.num_rows and passing.num_columns > 1:
                    yield from passing.to_batches()
