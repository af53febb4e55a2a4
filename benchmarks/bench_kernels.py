"""How fast the engine is without Spark: packing and operators of a workload, in one process, one step after the other.

    python -m benchmarks.bench_kernels [NAME...] [--rows N]

The files, the SQL, the plan, the batches and the buckets are those of ``watersmeet bench NAME``; state lies in memory.
Two tasks work at a time on two cores there, so that twice these rates are what Spark could reach if it cost nothing.
Every result is compared with DuckDB's batch answer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.arguments import count, workload_name, workload_of
from benchmarks.engines import batch_answer, definitions
from benchmarks.streams import streams_folder, write_streams
from benchmarks.workloads import MARGIN_MICROS, Workload
from watersmeet.columns import WEIGHT
from watersmeet.engine.frames import Frame, FrameKind, decode_table
from watersmeet.engine.host import process
from watersmeet.engine.pack import pack
from watersmeet.engine.parquet import ParquetFile, ParquetRows, read_parquet
from watersmeet.engine.projection import project as project_rows
from watersmeet.engine.spec import OperatorSpec
from watersmeet.plan.specs import operator_specs, pack_specs
from watersmeet.plan.worker_projection import worker_projection
from watersmeet.planning import plan_query
from watersmeet.state.store import MemoryStore
from watersmeet.state.working_set import WorkingSets
from watersmeet.testing.bench import StepInput
from watersmeet.testing.expressions import project, select
from watersmeet.testing.harness import HeldHotKeys, load_script
from watersmeet.testing.source import source_table

_NAMES = (
    "inner",
    "left",
    "full",
    "semi",
    "anti",
    "uuid",
    "chain",
    "temporal",
    "asof",
    "changelog",
    "lookup",
)


class Engine:
    """A workload's packing and operators."""

    def __init__(self, workload: Workload, folder: Path) -> None:
        self._folder = folder
        streams, query = load_script(";\n".join([*definitions(workload, folder), workload.sql]))
        self.plan = plan_query(query, streams)
        sources = [source_table(part.input.stream, StepInput(), 0) for part in self.plan.inputs]
        schemas = [project(part, source).schema for part, source in zip(self.plan.inputs, sources, strict=True)]
        buckets = tuple(range(workload.partitions))
        self._packs = pack_specs(self.plan, schemas, buckets)
        self._operators = operator_specs(self.plan, schemas, [("",)] * len(schemas), buckets)
        self._projections = []
        for part, source, schema in zip(self.plan.inputs, sources, schemas, strict=True):
            projection = worker_projection(part, source.schema, schema)
            if projection is None:
                raise SystemExit(f"{workload.name}: only Spark can compute what is asked of {part.input.stream.name}")
            reads = pa.schema([source.schema.field(name) for name in projection.reads])
            self._projections.append((projection, ParquetRows(reads, "", projection.sequence is not None)))
        self._stores: dict[tuple[str, int], MemoryStore] = defaultdict(MemoryStore)
        self._hot_keys: dict[str, HeldHotKeys] = defaultdict(HeldHotKeys)
        self._sets = WorkingSets(most_bytes=8 << 30)

    def pack(self, number: int) -> list[list[Frame]]:
        """The frames of a batch, for each input; each is packed by one task."""
        packed = []
        for part, spec, (projection, rows) in zip(self.plan.inputs, self._packs, self._projections, strict=True):
            path = self._files(part.input.stream.name)[number]
            file = ParquetFile(path.as_uri(), path.name)
            tables = (project_rows(each, projection) for each in read_parquet(file, rows))
            batches = (batch for table in tables if table is not None for batch in table.to_batches())
            packed.append(list(pack(batches, spec, self._hot_keys[spec.operator].read())))
        return packed

    def step(self, packed: list[list[Frame]]) -> list[Frame]:
        """What the last operator sends."""
        sent: list[list[Frame]] = []
        for operator, spec in zip(self.plan.operators, self._operators, strict=True):
            arriving = [
                packed[feed.source] if feed.source is not None else sent[feed.operator or 0] for feed in operator.feeds
            ]
            sent.append(list(self._operate(spec, (frame for frames in arriving for frame in frames))))
        return sent[-1]

    def results(self, sent: Iterable[Frame]) -> pa.Table:
        """The SELECT list over what was sent, evaluated by DuckDB in place of Spark."""
        empty = self._operators[-1].output.empty_table()
        rows = [decode_table(frame.payload) for frame in sent if frame.kind is FrameKind.ROWS]
        return select(self.plan, pa.concat_tables([empty, *rows]))

    def _operate(self, spec: OperatorSpec, arriving: Iterable[Frame]) -> Iterator[Frame]:
        by_bucket: dict[int, list[Frame]] = defaultdict(list)
        for frame in arriving:
            by_bucket[frame.bucket].append(frame)
        for bucket, frames in sorted(by_bucket.items()):
            store, working_set = self._stores[spec.name, bucket], self._sets.get(spec.name, str(bucket))
            yield from process(spec, bucket, frames, store, working_set, hot_keys=self._hot_keys[spec.name])

    def _files(self, side: str) -> list[Path]:
        return sorted((self._folder / side).glob("*.parquet"))


def measure(workload: Workload, below: Path) -> dict[str, int | str]:
    """Rows a second of packing, of the operators, and of both; ends the program where the results are not right."""
    folder = write_streams(below, workload.data)
    expected = batch_answer(workload, folder)
    engine = Engine(workload, folder)
    found = dict.fromkeys(expected, 0)
    packing, operating = [], []
    for number in range(workload.data.files):
        started = time.perf_counter()
        packed = engine.pack(number)
        begun = time.perf_counter()
        sent = engine.step(packed)
        packing.append(begun - started)
        operating.append(time.perf_counter() - begun)
        for name, value in _sums(engine.results(sent), workload).items():
            found[name] += value
    if found != expected:
        raise SystemExit(f"{workload.name}: the results differ from DuckDB's: {found}, expected {expected}")
    steady = slice(workload.warm_up, None)
    pack_time, step_time = statistics.median(packing[steady]), statistics.median(operating[steady])
    times = {"pack": pack_time, "operators": step_time, "both": pack_time + step_time}
    rates = {f"{name}_rows_per_s": round(workload.data.rows_a_batch / seconds) for name, seconds in times.items()}
    return {"workload": workload.name, **rates}


def _sums(results: pa.Table, workload: Workload) -> dict[str, int]:
    """The sums by which engines are compared."""
    if workload.cutoff:
        results = results.filter(pc.less(results["at"].cast(pa.int64()), workload.data.end_micros - MARGIN_MICROS))
    weights = results[WEIGHT].cast(pa.int64())
    sums = {
        name: pc.sum(pc.multiply(results[name].cast(pa.int64()), weights)).as_py() or 0 for name in ("l_id", "r_id")
    }
    return {"rows": pc.sum(weights).as_py() or 0, **sums}


def main() -> None:
    """Measure workloads, and print a table and a line of JSON."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument(
        "names", nargs="*", type=workload_name, metavar="NAME", help=f"workloads (none: {' '.join(_NAMES)})"
    )
    arguments.add_argument("--rows", type=count, help="rows a side, in place of each workload's own")
    options = arguments.parse_args()
    workloads = [workload_of(arguments, name, options.rows) for name in options.names or _NAMES]
    print("| workload | packing, rows/s | operators, rows/s | both, rows/s |\n|---|---|---|---|")
    measured = []
    for workload in workloads:
        figures = measure(workload, streams_folder())
        measured.append(figures)
        print(
            "| `{workload}` | {pack_rows_per_s:,} | {operators_rows_per_s:,} | {both_rows_per_s:,} |".format(**figures),
            flush=True,
        )
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
