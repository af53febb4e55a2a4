"""The state of a query in micro-batches: read from Spark's checkpoint, and written as a new checkpoint of Spark.

Spark's checkpoint cannot be given other buckets: its state store is divided by the hash of the bucket's number, over as
many partitions as there were.  So a query of the same shape fills a new one in one batch, from files.  Its log then
gets the offsets of the last committed batch, so that the sources go on behind them, and those of a batch that was
planned and not committed, so that it gets the same rows.  The plan file tells how many batches came before.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from watersmeet.engine.bucket_step import first_manifest
from watersmeet.engine.frames import FRAME_DDL, FRAME_SCHEMA
from watersmeet.engine.hot_keys import HotKeys
from watersmeet.engine.specs import OperatorSpec
from watersmeet.errors import CheckpointError
from watersmeet.kernels.evicting.join import EvictingJoin
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.runtime.checkpoint import Checkpoint
from watersmeet.runtime.hot_key_files import keys_in
from watersmeet.runtime.plan_file import PlanFile
from watersmeet.runtime.processor import STATE
from watersmeet.runtime.replace.sources import Order
from watersmeet.runtime.rescale.change import Change, OperatorDivision
from watersmeet.runtime.rescale.division import DESCRIBED, ENTRY_DDL, DivideTask
from watersmeet.runtime.rescale.running import query_id
from watersmeet.runtime.rescale.seed_processor import SeedProcessor
from watersmeet.runtime.storage import Storage
from watersmeet.runtime.worker_tasks import state_prefix
from watersmeet.state.manifest import MANIFEST, Manifest, decode_manifest

#: Entries hold up to some megabytes each, so few of them travel at once.
_FEW_AT_ONCE = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
    "spark.sql.parquet.columnarReaderBatchSize": "16",
}
_LOG_VERSION = "v1"
_LONGEST_NAME = 1 << 16


@dataclass(frozen=True, slots=True)
class _Progress:
    """How far a query has come, by Spark's numbers: the last committed batch, and whether one is planned after it."""

    committed: int
    planned: bool


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the state of an operator is: Spark's number of its task, and how names of its values begin there."""

    number: int
    prefix: str


class SparkState:
    """The state of one query, before and after."""

    def __init__(self, spark: SparkSession, checkpoint: Checkpoint, physical: PhysicalPlan, change: Change) -> None:
        self._spark = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
        for name, value in _FEW_AT_ONCE.items():
            self._spark.conf.set(name, value)
        self._storage = Storage(spark)
        self._checkpoint, self._physical, self._change = checkpoint, physical, change
        self._old, self._new = checkpoint.spark(change.stored), checkpoint.spark(change.plan)
        self._pieces = f"{checkpoint.folder}/rescaled-{change.plan.generation}"
        self._places: dict[str, _Place] = {}  # of operators, by name
        self._progress = self._read_progress()

    # -- before --------------------------------------------------------------------------------------------------------

    def manifests(self) -> dict[str, dict[int, Manifest]]:
        """The manifests of all buckets, by operator and bucket.

        Raises ``CheckpointError`` if the state is that of another plan.
        """
        names = {spec.fingerprint: spec for spec in self._change.before}
        inputs = range(max(len(spec.inputs) for spec in self._change.before))
        found: dict[str, dict[int, Manifest]] = defaultdict(dict)
        for number in filter(str.isdigit, self._storage.names(f"{self._old}/state")):
            is_manifest = F.col("name").endswith(MANIFEST)
            for bucket, name, value in self._entries(_Place(int(number), "")).where(is_manifest).collect():
                manifest = decode_manifest(bytes(value), inputs)
                if (spec := names.get(manifest.fingerprint)) is None:
                    raise CheckpointError(
                        f"the state in {self._old} belongs to another query plan",
                        hint="rescale it with the query that it was made with",
                    )
                self._places[spec.name] = _Place(int(number), name.removesuffix(MANIFEST))
                found[spec.name][bucket] = manifest
        return found

    def hot_keys(self, manifests: Mapping[str, Mapping[int, Manifest]]) -> dict[str, HotKeys]:
        """The hot keys of operators that have any; ``CheckpointError`` if the file that names them is gone."""
        found = {}
        for spec in self._change.before:
            first = manifests.get(spec.name, {}).get(spec.buckets[0])
            if first is not None and first.hot_keys is not None:
                folder = self._log_folder(self._checkpoint.hot_keys, spec)
                path = f"{folder}/{first.hot_keys}.json"
                if (text := self._storage.read_text(path)) is None:
                    raise CheckpointError(f"{path} is missing: it names the hot keys", hint="restore it from a copy")
                found[spec.name] = keys_in(text, folder, first.hot_keys)
        return found

    def is_unchanged(self) -> bool:
        """Whether the query has neither planned nor committed a batch since the beginning."""
        return self._read_progress() == self._progress

    # -- after ---------------------------------------------------------------------------------------------------------

    def write(self, divisions: Sequence[OperatorDivision]) -> PlanFile:
        """Write the new checkpoint of Spark; return the plan file that it needs."""
        if self._progress.planned:
            self._refuse_to_evict_again()
        for division in divisions:
            self._divide(division)
        return self._written([division.after for division in divisions])

    def write_empty(self, order: Order) -> PlanFile:
        """Write a checkpoint that stands where the old one does, without any rows; return the plan file that it needs.

        ``order`` says which sources of the two queries are the same.
        """
        for spec in self._change.after:
            begun = [(each, MANIFEST, bytearray(first_manifest(spec, each).to_json())) for each in spec.buckets]
            frame = self._spark.createDataFrame(begun, ENTRY_DDL)
            frame.write.mode("overwrite").parquet(f"{self._pieces}/{spec.name}")
        return self._written(self._change.after, order)

    def write_planned(self, order: Order) -> PlanFile:
        """Write a checkpoint whose first batch is planned: it takes all that the old one has taken.

        ``order`` is that of ``write_empty``.  Return the plan file that it needs once that batch is committed.
        """
        head = self._log_lines(f"{self._old}/offsets/{self._progress.committed}")[:2]
        # an id of its own: hot keys are noted under it
        self._storage.write_text(f"{self._new}/metadata", json.dumps({"id": str(uuid.uuid4())}))
        self._copy_sources(order)
        self._write_offsets(f"{self._new}/offsets/0", head, self._progress.committed, order)
        before = self._change.stored.batches_before + self._progress.committed
        return self._change.plan.model_copy(update={"batches_before": before})

    def plan_next(self, order: Order) -> None:
        """Let the batch that the old query had planned, and not committed, be the next one."""
        if self._progress.planned:
            head = self._log_lines(f"{self._new}/offsets/0")[:2]
            self._write_offsets(f"{self._new}/offsets/1", head, self._progress.committed + 1, order)

    def _written(self, after: Sequence[OperatorSpec], order: Order | None = None) -> PlanFile:
        last = self._seed()
        # the query keeps its id; not sooner, since Spark has one query of an id at a time
        self._storage.delete(f"{self._new}/metadata")
        self._storage.copy(f"{self._old}/metadata", f"{self._new}/metadata")
        self._continue_from(last, order)
        before = self._change.stored.batches_before + self._progress.committed
        for spec in after:
            self._report_sizes(spec, before)
        self._storage.delete(self._pieces)
        return self._change.plan.model_copy(update={"batches_before": before - last})

    def _divide(self, division: OperatorDivision) -> None:
        name = division.before.name
        new = zip(division.after.buckets, division.new_manifests, strict=True)
        begun = self._spark.createDataFrame(
            [(bucket, MANIFEST, bytearray(manifest.to_json())) for bucket, manifest in new], ENTRY_DDL
        )
        divided = self._entries(self._places[name]).mapInArrow(DivideTask(division).run, ENTRY_DDL)
        begun.unionAll(divided).write.mode("overwrite").parquet(f"{self._pieces}/{name}")

    def _seed(self) -> int:
        """Fill the state of a new checkpoint; return the number of Spark's batch that did.

        Spark numbers the operators of a query by its shape, so this one has the shape of the query that goes on.
        """
        sent: dict[int, DataFrame] = {}
        for task in self._change.tasks:
            arriving = [sent[each] for arrival in task.arrivals for each in arrival.senders(self._physical)]
            for number, member in enumerate(task.members):
                stored = self._spark.readStream.schema(ENTRY_DDL).parquet(f"{self._pieces}/{member.spec.name}")
                arriving.append(stored.mapInArrow(partial(_as_frames, number), FRAME_DDL))
            names = [member.spec.name for member in task.members]
            seed = SeedProcessor([""] if len(names) == 1 else [state_prefix(name) for name in names])
            union = reduce(DataFrame.unionAll, arriving)
            sent[task.operators[-1]] = union.groupBy("bucket").transformWithStateInPandas(
                seed, outputStructType=FRAME_DDL, outputMode="Append", timeMode="None"
            )
        writer = sent[len(self._change.after) - 1].writeStream.format("noop").option("checkpointLocation", self._new)
        writer.trigger(availableNow=True).start().awaitTermination()
        return max(self._numbers(self._new, "commits"))

    def _continue_from(self, last: int, order: Order | None) -> None:
        """Let the new checkpoint go on where the old one stands: sources, and offsets of up to two batches."""
        self._copy_sources(order)
        head = self._log_lines(f"{self._new}/offsets/{last}")[:2]
        for ahead in range(1 + self._progress.planned):
            self._write_offsets(f"{self._new}/offsets/{last + ahead}", head, self._progress.committed + ahead, order)

    def _copy_sources(self, order: Order | None) -> None:
        self._storage.delete(f"{self._new}/sources")
        if not self._storage.exists(f"{self._old}/sources"):
            return
        if order is None:
            self._storage.copy(f"{self._old}/sources", f"{self._new}/sources")
            return
        for number, old in enumerate(order.numbers):
            if self._storage.exists(f"{self._old}/sources/{old}"):
                self._storage.copy(f"{self._old}/sources/{old}", f"{self._new}/sources/{number}")

    def _write_offsets(self, path: str, head: Sequence[str], batch: int, order: Order | None) -> None:
        """Write the offsets of a batch of the old query after a ``head``: the version, and Spark's settings."""
        offsets = self._log_lines(f"{self._old}/offsets/{batch}")[2:]
        if order is not None:
            if len(offsets) != order.before:
                raise CheckpointError(
                    f"{self._old}/offsets/{batch} has {len(offsets)} sources, and the query that wrote it"
                    f" {order.before}",
                    hint="nothing was changed; please report this",
                )
            offsets = [offsets[old] for old in order.numbers]
        self._storage.write_text(path, "\n".join([*head, *offsets]))

    def _report_sizes(self, spec: OperatorSpec, batch: int) -> None:
        """Note what the new buckets hold, from which each one learns at the next batch what it may hold."""
        if spec.max_state_bytes is None or len(spec.buckets) == 1:
            return
        described = self._spark.read.parquet(f"{self._pieces}/{spec.name}").where(F.col("name").startswith(DESCRIBED))
        nbytes = F.get_json_object(F.col("value").cast("string"), "$.nbytes").cast("bigint")
        sizes: dict[int, int] = dict(described.groupBy("bucket").agg(F.sum(nbytes)).collect())
        for bucket in spec.buckets:
            folder = self._log_folder(self._checkpoint.sizes, spec)
            self._storage.write_text(f"{folder}/{batch}/{bucket}-{sizes.get(bucket, 0)}", "")

    # -- Spark's files -------------------------------------------------------------------------------------------------

    def _entries(self, place: _Place) -> DataFrame:
        """What the state store holds of an operator, or of all of a task, after the last committed batch."""
        state = (
            self._spark.read.format("statestore")
            .option("operatorId", place.number)
            .option("stateVarName", STATE)
            .option("batchId", self._progress.committed)
            .load(self._old)
        )
        name = F.col("user_map_key.name")
        return state.where(name.startswith(place.prefix)).select(
            F.col("key.bucket").alias("bucket"),
            F.substring(name, len(place.prefix) + 1, _LONGEST_NAME).alias("name"),
            F.col("user_map_value.value").alias("value"),
        )

    def _read_progress(self) -> _Progress:
        commits, offsets = self._numbers(self._old, "commits"), self._numbers(self._old, "offsets")
        if not commits:
            raise CheckpointError(
                f"no batch of the checkpoint {self._checkpoint.folder} has been committed: it has no state",
                hint="run the query first; or start it on a new checkpoint with SETTINGS buckets",
            )
        return _Progress(max(commits), max(offsets, default=0) > max(commits))

    def _numbers(self, folder: str, log: str) -> list[int]:
        return [int(name) for name in self._storage.names(f"{folder}/{log}") if name.isdigit()]

    def _log_lines(self, path: str) -> list[str]:
        lines = (self._storage.read_text(path) or "").split("\n")
        if lines[0] != _LOG_VERSION:
            raise CheckpointError(
                f"{path} has the format {lines[0] or 'of an empty file'}, and this version of Watersmeet reads"
                f" {_LOG_VERSION}",
                hint="rescale the query with the version of Spark that it ran with",
            )
        return lines

    def _log_folder(self, folder: str, spec: OperatorSpec) -> str:
        """The folder of an operator in a log of files beside the checkpoint."""
        return f"{folder}/{query_id(self._storage, self._old)}/{spec.name}-{spec.fingerprint}"

    def _refuse_to_evict_again(self) -> None:
        """Raise ``CheckpointError`` if a batch that has begun would give other results with other buckets."""
        evicting = [spec.name for spec in self._change.before if isinstance(spec.kernel, EvictingJoin)]
        if evicting:
            raise CheckpointError(
                f"a batch has begun and was not committed, and {evicting[0]} evicts rows: with other buckets it would"
                " evict others",
                hint="run the query until that batch is committed (watersmeet run … --drain), and rescale it then",
            )


def _as_frames(member: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        count = batch.num_rows
        buckets, names, values = batch.columns
        numbers = {"input": member, "kind": 0, "frontier": 0}
        filled = {name: pa.array([number] * count) for name, number in numbers.items()}
        columns = {"bucket": buckets, "part": names, "payload": values, **filled}
        yield pa.RecordBatch.from_arrays(
            [columns[field.name].cast(field.type) for field in FRAME_SCHEMA], schema=FRAME_SCHEMA
        )
