"""The test harness: runs a whole query in one process, without Spark, one step at a time.

It plans the query as the session does, and runs the same packing, operators, state and frontiers.  Only row-wise
expressions differ: DuckDB evaluates them instead of Spark (expressions.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

import pyarrow as pa

from watersmeet.bind.planning import plan_query
from watersmeet.bind.statement_sets import plan_set
from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import WEIGHT
from watersmeet.engine.bucket_step import OpenBucket
from watersmeet.engine.bucket_task import run_task
from watersmeet.engine.control_events import Event
from watersmeet.engine.conversion import Conversion
from watersmeet.engine.frames import Frame, FrameKind, counters_in, decode_table
from watersmeet.engine.hot_keys import Entry, HotKeys
from watersmeet.engine.outbox import INPUT_FRONTIER
from watersmeet.engine.pack import pack
from watersmeet.engine.rescale import rescaled, stays
from watersmeet.engine.specs import OperatorSpec, PackSpec
from watersmeet.errors import CatalogError, UnsupportedError
from watersmeet.lookup.source import LookupSource
from watersmeet.lookup.tables import table_schema
from watersmeet.plan.physical_plan import PhysicalInput, PhysicalPlan
from watersmeet.plan.replacing import Verdict, Way, verdict_on
from watersmeet.plan.task_specs import Task, joint_tasks, task_specs
from watersmeet.plan.worker_specs import operator_specs, pack_specs
from watersmeet.sql.statements import Query, StatementSet
from watersmeet.state.manifest import Manifest, read_manifest
from watersmeet.state.store import MemoryStore
from watersmeet.state.working_sets import WorkingSets
from watersmeet.testing.cells import Row
from watersmeet.testing.expressions import Projection, hash_values, select, spark_types
from watersmeet.testing.results import empty_results, results_table
from watersmeet.testing.rig import Rig, StepInput, StepOutcome
from watersmeet.testing.script import load_script
from watersmeet.testing.source import source_table
from watersmeet.testing.tables import HeldTable, table_rows

# Tests use them together: harness = Harness(*load_script(sql)); harness.step({"orders": StepInput(rows)})
__all__ = ["Harness", "StepInput", "StepOutcome", "load_script"]


class Harness(Rig):
    """One running query, or those of a statement set; ``step`` feeds it a batch.

    ``buckets`` is the number of buckets of a query whose SETTINGS do not name one.  DuckDB keeps to ``table_bytes``;
    a batch with rows of more than ``max_step_bytes`` in a bucket is taken in several steps.
    """

    #: Whether operators may run in one task.
    shares_tasks = True

    def __init__(
        self,
        streams: Mapping[str, StreamDef],
        query: Query | StatementSet,
        *,
        buckets: int = 2,
        table_bytes: int | None = None,
        max_step_bytes: int | None = None,
    ) -> None:
        self.streams = streams
        self._tables: dict[str, pa.Table] = {}  # by lower-case name
        if isinstance(query, Query):
            self.plan = plan_query(query, streams, self._open_table)
        else:
            self.plan = plan_set(query, streams, self._open_table)
        self._working_sets = _working_sets(table_bytes)
        self.max_step_bytes = max_step_bytes
        self._stores: dict[tuple[str, int], MemoryStore] = defaultdict(MemoryStore)
        self._hot_keys: dict[str, HeldHotKeys] = defaultdict(HeldHotKeys)  # by operator
        self._sizes: dict[str, HeldSizes] = defaultdict(HeldSizes)
        self._rows_fed: Counter[str] = Counter()
        self._counters: dict[str, int] = {}
        self._projections: dict[int, Projection] = {}  # by the identity of the plan's inputs
        self._schemas = [self._schema(part) for part in self.plan.inputs]
        self._buckets = tuple(range(self.plan.query.settings.buckets or buckets))
        self._kept: dict[str, tuple[int, ...]] = {}
        self.restart()
        # An error in the SELECT list is raised now, not at the first row.
        result, *_ = [select(query, schema.empty_table()) for query, schema in self._results()]
        super().__init__(self.plan, spark_types(result.schema))

    def restart(self) -> None:
        """Forget everything that is not durable; the operators' specs are those of a new run."""
        self._working_sets.forget()
        self._begin(self._specs(("",)))

    def _specs(self, parts: tuple[str, ...]) -> list[OperatorSpec]:
        """The operators of a run in which each source has these parts."""
        of_inputs = [tuple(map(str, range(len(part.branches)))) or parts for part in self.plan.inputs]
        return operator_specs(self.plan, self._schemas, of_inputs, self._buckets, self._kept)

    def _begin(self, operators: list[OperatorSpec]) -> None:
        """Begin a run with these operators."""
        self._operators = operators
        joint = joint_tasks(self.plan, operators, self._schemas) if self.shares_tasks else ()
        self.plan = replace(self.plan, tasks=joint)
        packs = pack_specs(self.plan, self._schemas, self._buckets, self._kept)
        self._tasks = task_specs(self.plan, operators, packs, self._schemas)

    def rescale(self, buckets: int) -> None:
        """Restart with another number of buckets, as ``watersmeet rescale`` changes it between two runs."""
        before, numbers = self._operators, tuple(range(buckets))
        self._kept |= {
            spec.name: spec.buckets
            for operator, spec in zip(self.plan.operators, before, strict=True)
            if not operator.single_bucket and stays(spec)
        }
        self._buckets = numbers
        self.restart()
        self._divide_state(before, {})

    def _divide_state(self, before: Sequence[OperatorSpec], conversions: Mapping[str, Conversion]) -> None:
        for old, new in zip(before, self._operators, strict=True):
            stores = [self._stores.pop((old.name, bucket), MemoryStore()) for bucket in old.buckets]
            parts = {number: input.parts for number, input in enumerate(old.inputs)}
            manifests = [read_manifest(store, old.fingerprint, parts) for store in stores]
            if not any(manifest.step for manifest in manifests):
                continue
            hot_keys = self._hot_keys.pop(old.name, HeldHotKeys()).read().keys
            divided = rescaled(old, new, manifests, stores, hash_values, hot_keys, conversions.get(old.name))
            self._sizes[new.name] = HeldSizes()
            for bucket, store in zip(new.buckets, divided, strict=True):
                self._stores[new.name, bucket] = store
                self._sizes[new.name].report(bucket, read_manifest(store, new.fingerprint, {}).nbytes)

    def replace(self, streams: Mapping[str, StreamDef], query: Query) -> Verdict:
        """Go on with another query where the state allows it, as ``watersmeet replace`` does; say how.

        Raises ``UnsupportedError`` where the state does not allow it.
        """
        then, before, plan = self.plan, self._operators, plan_query(query, streams, self._open_table)
        self.streams = streams
        self.plan = plan
        self._projections = {}
        self._schemas = [self._schema(part) for part in plan.inputs]
        self.restart()
        verdict = verdict_on(then, before, self.plan, self._operators)
        if verdict.way is Way.ANEW:
            raise UnsupportedError("the query needs a new version")
        self._divide_state(before, verdict.conversions)
        result, *_ = [select(query, schema.empty_table()) for query, schema in self._results()]
        super().__init__(self.plan, spark_types(result.schema))
        return verdict

    def manifest(self, operator: int, bucket: int = 0) -> Manifest:
        """The manifest of a bucket, both by their places."""
        spec = self._operators[operator]
        return read_manifest(self._stores[spec.name, spec.buckets[bucket]], spec.fingerprint, {})

    @property
    def operators(self) -> Sequence[OperatorSpec]:
        """The operators of this run."""
        return self._operators

    def fill(self, table: str, rows: Sequence[Row]) -> None:
        """Replace the rows of an external table."""
        self._tables[table.lower()] = table_rows(self.streams[table.lower()], rows)

    def step(self, inputs: Mapping[str, StepInput], events: Sequence[Event] = ()) -> StepOutcome:
        """Feed rows by stream name, then control events; return what the query emits."""
        return self.step_all(inputs, events)[0]

    def step_all(self, inputs: Mapping[str, StepInput], events: Sequence[Event] = ()) -> list[StepOutcome]:
        """Feed rows as ``step`` does; return what each query emits.  Counters and side rows are with the first."""
        for sizes in self._sizes.values():
            sizes.begin()
        by_stream = {name.lower(): rows for name, rows in inputs.items()}
        for name in by_stream:
            if name not in self.streams:
                raise CatalogError(f"there is no stream {name}")
        packed = [
            self._pack(part, rows, spec) if not part.branches and (rows := by_stream.get(_stream(part))) else []
            for part, spec in zip(self.plan.inputs, self._tasks.packs, strict=True)
        ]
        for name, rows in by_stream.items():
            self._rows_fed[name] += len(rows.rows) + len(rows.raw)
        sent: dict[int, list[Frame]] = {}  # by the operator whose results they are
        for task in self._tasks.tasks:
            arriving = list(control_frames(self._operators[task.operators[0]], events))
            for feed in (feed for number in task.operators for feed in self.plan.operators[number].feeds):
                if feed.source is None:
                    assert feed.operator is not None
                    arriving += sent.get(feed.operator, [])
                    continue
                below = [branch.operator for branch in self.plan.inputs[feed.source].branches]
                if below and not set(below) & set(task.operators):
                    packed[feed.source] = self._pack_results(feed.source, sent)
                arriving += packed[feed.source]
            sent[task.operators[-1]] = self._operate(task, arriving)
        outcomes = []
        for number, (query, schema) in enumerate(self._results()):
            frames = [frame for frame in sent[len(self._operators) - 1] if frame.input == number]
            outcomes.append(self._outcome(frames, query, schema))
        return outcomes

    def _results(self) -> list[tuple[PhysicalPlan, pa.Schema]]:
        """The plan of each query, and the schema of its results before the SELECT list."""
        return list(zip(self.plan.queries, self._operators[-1].outputs, strict=True))

    def _open_table(self, table: StreamDef, columns: Sequence[str]) -> LookupSource:
        return HeldTable(table.name.lower(), table_schema(table, columns), self._tables)

    def _project(self, part: PhysicalInput, rows: StepInput) -> pa.Table:
        """Return a source's rows with the columns that packing needs."""
        return self._projection(part).of(source_table(part.input.stream, rows, self._rows_fed[_stream(part)]))

    def _projection(self, part: PhysicalInput) -> Projection:
        if (found := self._projections.get(id(part))) is None:
            found = self._projections[id(part)] = Projection(part)
        return found

    def _schema(self, part: PhysicalInput) -> pa.Schema:
        """The columns that packing an input needs, with their types."""
        if part.branches:
            return self._projection(part).of(empty_results(part)).schema
        return self._project(part, StepInput()).schema

    def _pack_results(self, number: int, sent: Mapping[int, Sequence[Frame]]) -> list[Frame]:
        """Pack the results of the operators below an input; frames that are no rows go on as they are."""
        part, spec = self.plan.inputs[number], self._tasks.packs[number]
        frames = [sent[branch.operator] for branch in part.branches]
        schemas = [self._operators[branch.operator].output for branch in part.branches]
        rows = self._projection(part).of(results_table(part, frames, schemas))
        passing = [
            replace(frame, bucket=spec.buckets[0])
            for of_branch in frames
            for frame in of_branch
            if frame.kind in (FrameKind.SIDE, FrameKind.COUNTER)
        ]
        return [*pack(rows.to_batches(), spec), *passing]

    def _pack(self, part: PhysicalInput, rows: StepInput, spec: PackSpec) -> list[Frame]:
        hot_keys = self._hot_keys[spec.operator].read()
        return list(pack(self._project(part, rows).to_batches(), spec, hot_keys))

    def _operate(self, task: Task, arriving: Iterable[Frame]) -> list[Frame]:
        """Take one step of a task, bucket by bucket; return the frames that it sends."""
        by_bucket: dict[int, list[Frame]] = defaultdict(list)
        for frame in arriving:
            by_bucket[frame.bucket].append(frame)
        return [
            sent
            for bucket, frames in sorted(by_bucket.items())
            for sent in run_task(task.members, bucket, frames, partial(self._bucket, bucket))
        ]

    def _bucket(self, bucket: int, spec: OperatorSpec) -> OpenBucket:
        return OpenBucket(
            spec,
            bucket,
            self._stores[spec.name, bucket],
            self._working_sets.get(spec.name, str(bucket)),
            hot_keys=self._hot_keys[spec.name],
            sizes=self._sizes[spec.name],
            max_step_bytes=self.max_step_bytes,
        )

    def _outcome(self, results: Iterable[Frame], plan: PhysicalPlan, schema: pa.Schema) -> StepOutcome:
        by_kind: dict[FrameKind, list[Frame]] = defaultdict(list)
        for frame in results:
            by_kind[frame.kind].append(frame)
        rows = [decode_table(frame.payload) for frame in by_kind[FrameKind.ROWS]]
        side = [row for frame in by_kind[FrameKind.SIDE] for row in decode_table(frame.payload).to_pylist()]
        return StepOutcome(result_changes(rows, plan, schema), side, self._counted(by_kind[FrameKind.COUNTER]))

    def _counted(self, reported: Iterable[Frame]) -> dict[str, int]:
        """Return all counters, after the last operator has reported these."""
        values: dict[str, list[int]] = defaultdict(list)
        for frame in reported:
            for name, value in counters_in(frame).items():
                values[name].append(value)
        # Counters are cumulative, and either all buckets of an operator report them or none does.
        self._counters |= {name: _over_buckets(name, each) for name, each in values.items()}
        return dict(self._counters)


class HeldHotKeys:
    """The hot keys of an operator, kept in memory."""

    def __init__(self) -> None:
        self._entry = Entry()

    def read(self) -> Entry:
        """The newest entry."""
        return self._entry

    def append(self, before: Entry, after: HotKeys, seen: Sequence[int]) -> Entry:
        """Add an entry if the hot keys have changed."""
        if after != before.keys:
            self._entry = Entry(0 if before.batch is None else before.batch + 1, after)
        return self._entry


class HeldSizes:
    """The sizes of an operator's buckets, kept in memory."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}
        self._now: dict[int, int] = {}

    def begin(self) -> None:
        """Begin a batch."""
        self._before, self._now = self._now, {}

    def read(self) -> Mapping[int, int]:
        """The sizes after the batch before."""
        return self._before

    def report(self, bucket: int, size: int) -> None:
        """Note a size after this batch."""
        self._now[bucket] = size


@cache
def _working_sets(table_bytes: int | None) -> WorkingSets:
    return WorkingSets(keyed_bytes=1 << 30, table_bytes=table_bytes)


def _stream(part: PhysicalInput) -> str:
    return part.input.stream.name.lower()


def result_changes(results: Iterable[pa.Table], plan: PhysicalPlan, schema: pa.Schema) -> list[tuple[int, Row]]:
    """Evaluate a query's SELECT list over the last operator's results; return rows with their weights."""
    rows = select(plan, pa.concat_tables([schema.empty_table(), *results]))
    columns = [column.to_pylist() for column in rows.drop_columns([WEIGHT]).columns]
    return list(zip(rows[WEIGHT].to_pylist(), zip(*columns, strict=True), strict=True))


def control_frames(spec: OperatorSpec, events: Iterable[Event]) -> list[Frame]:
    """Return every control event as a frame to every bucket."""
    return [Frame(bucket, 0, "", FrameKind.CONTROL, 0, event.to_json()) for event in events for bucket in spec.buckets]


def _over_buckets(name: str, values: Sequence[int]) -> int:
    """Combine a counter of all buckets: the sum, or an extreme, as in runtime/metrics.py."""
    _, counter, *_ = name.split(".", 2)
    combine = {"frontier": min, INPUT_FRONTIER: min, "worker_bytes": max}.get(counter, sum)
    return combine(values)
