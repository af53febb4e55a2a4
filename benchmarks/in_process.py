"""Runs the packing and the operators of a query in one process, without Spark, one step after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from watersmeet.bind.planning import plan_query
from watersmeet.engine.bucket_step import run_step
from watersmeet.engine.frames import Frame, FrameKind, decode_table
from watersmeet.engine.pack import pack
from watersmeet.engine.parquet import ParquetRows
from watersmeet.engine.projection import project as project_rows
from watersmeet.engine.specs import OperatorSpec
from watersmeet.plan.worker_projection import worker_projection
from watersmeet.plan.worker_specs import operator_specs, pack_specs
from watersmeet.state.store import MemoryStore
from watersmeet.state.working_sets import WorkingSets
from watersmeet.testing.expressions import Projection, select
from watersmeet.testing.harness import HeldHotKeys, load_script
from watersmeet.testing.rig import StepInput
from watersmeet.testing.source import source_table


class Engine:
    """A script's query with its state in memory; ``names`` are its streams, and ``rows`` what it reads of each."""

    def __init__(self, script: str, buckets: Sequence[int]) -> None:
        streams, query = load_script(script)
        self._plan = plan_query(query, streams)
        self.names = [part.input.stream.name for part in self._plan.inputs]
        sources = [source_table(part.input.stream, StepInput(), 0) for part in self._plan.inputs]
        schemas = [Projection(part).of(source).schema for part, source in zip(self._plan.inputs, sources, strict=True)]
        self._packs = pack_specs(self._plan, schemas, tuple(buckets))
        self._operators = operator_specs(self._plan, schemas, [("",)] * len(schemas), tuple(buckets))
        self._projections = []
        self.rows = []
        for part, source, schema in zip(self._plan.inputs, sources, schemas, strict=True):
            projection = worker_projection(part, source.schema, schema)
            if projection is None:
                raise SystemExit(f"only Spark can compute what is asked of {part.input.stream.name}")
            self._projections.append(projection)
            reads = pa.schema([source.schema.field(name) for name in projection.reads])
            self.rows.append(ParquetRows(reads, projection.sequence is not None))
        self._stores: dict[tuple[str, int], MemoryStore] = defaultdict(MemoryStore)
        self._hot_keys: dict[str, HeldHotKeys] = defaultdict(HeldHotKeys)
        self._sets = WorkingSets(keyed_bytes=8 << 30)

    def pack(self, inputs: Sequence[Iterable[pa.Table]]) -> list[list[Frame]]:
        """Return the frames of a batch, by input; one task packs each input."""
        packed = []
        for arriving, spec, projection in zip(inputs, self._packs, self._projections, strict=True):
            tables = (project_rows(each, projection) for each in arriving)
            batches = (batch for table in tables if table is not None for batch in table.to_batches())
            packed.append(list(pack(batches, spec, self._hot_keys[spec.operator].read())))
        return packed

    def step(self, packed: Sequence[Sequence[Frame]]) -> list[Frame]:
        """Run all operators; return the frames that the last one sends."""
        sent: list[list[Frame]] = []
        for operator, spec in zip(self._plan.operators, self._operators, strict=True):
            arriving = [
                packed[feed.source] if feed.source is not None else sent[feed.operator or 0] for feed in operator.feeds
            ]
            sent.append(list(self._operate(spec, (frame for frames in arriving for frame in frames))))
        return sent[-1]

    def results(self, sent: Iterable[Frame]) -> pa.Table:
        """Return the SELECT list over the frames, evaluated by DuckDB instead of Spark."""
        empty = self._operators[-1].output.empty_table()
        rows = [decode_table(frame.payload) for frame in sent if frame.kind is FrameKind.ROWS]
        return select(self._plan, pa.concat_tables([empty, *rows]))

    def _operate(self, spec: OperatorSpec, arriving: Iterable[Frame]) -> Iterator[Frame]:
        by_bucket: dict[int, list[Frame]] = defaultdict(list)
        for frame in arriving:
            by_bucket[frame.bucket].append(frame)
        for bucket, frames in sorted(by_bucket.items()):
            store, working_set = self._stores[spec.name, bucket], self._sets.get(spec.name, str(bucket))
            yield from run_step(spec, bucket, frames, store, working_set, hot_keys=self._hot_keys[spec.name])
