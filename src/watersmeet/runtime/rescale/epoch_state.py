"""The state of a query in real time: files of its last committed epoch, and the new buckets' files of the same epoch.

The new folder looks as if the run that committed this epoch had had other buckets.  So consumers of the results see no
other runs than there are.  As many tasks read the sources as before: Spark's checkpoint has a source for each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from watersmeet.engine.hot_keys import HotKeys
from watersmeet.errors import CheckpointError
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.runtime.checkpoint import Checkpoint
from watersmeet.runtime.plan_file import PlanFile
from watersmeet.runtime.real_time.epochs import SINK_FOLDER, file_name, next_run
from watersmeet.runtime.real_time.run_log import RunLog
from watersmeet.runtime.real_time.source_task import POSITIONS
from watersmeet.runtime.rescale.change import Change, OperatorDivision
from watersmeet.runtime.rescale.division import ENTRY_SCHEMA, DivideTask, entries, fill
from watersmeet.runtime.storage import Storage
from watersmeet.runtime.worker_tasks import worker_task
from watersmeet.state.epoch_store import EpochStore
from watersmeet.state.manifest import MANIFEST, Manifest, decode_manifest

_PLACE_DDL = "operator STRING NOT NULL, bucket INT NOT NULL"
_PLACED_DDL = "operator STRING NOT NULL, bucket INT NOT NULL, name STRING NOT NULL, value BINARY NOT NULL"
_PLACED_SCHEMA = pa.schema([pa.field("operator", pa.string(), nullable=False), *ENTRY_SCHEMA])
#: A bucket's values are written to files of about this size.
_FILE_BYTES = 64 << 20


class EpochState:
    """The state of one query, before and after."""

    def __init__(
        self,
        spark: SparkSession,
        checkpoint: Checkpoint,
        physical: PhysicalPlan,
        change: Change,
    ) -> None:
        self._spark = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
        self._spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "16")
        self._storage = storage = Storage(spark)
        self._physical, self._change = physical, change
        self._old, self._new = (checkpoint.epochs(plan) for plan in (change.stored, change.plan))
        self._log = RunLog(storage, checkpoint, change.stored)
        self._new_log = RunLog(storage, checkpoint, change.plan)
        self._starts, committed = self._log.read(), self._log.committed()
        base = next_run(self._starts, committed)[2]
        if committed is None or base is None:
            raise CheckpointError(
                f"no epoch of the checkpoint {checkpoint.folder} has been committed: it has no state",
                hint="run the query first; or start it on a new checkpoint with SETTINGS buckets",
            )
        self._epoch = committed
        self._file = file_name(committed, base)

    def manifests(self) -> dict[str, dict[int, Manifest]]:
        """The manifests of all buckets, by operator and bucket."""
        task = _ReadManifests(self._old, self._file)
        inputs = range(max(len(spec.inputs) for spec in self._change.before))
        found: dict[str, dict[int, Manifest]] = defaultdict(dict)
        for operator, bucket, _, value in self._places().mapInArrow(task.run, _PLACED_DDL).collect():
            found[operator][bucket] = decode_manifest(bytes(value), inputs)
        return found

    def hot_keys(self, manifests: Mapping[str, Mapping[int, Manifest]]) -> dict[str, HotKeys]:
        """None: keys are not spread in real time."""
        del manifests
        return {}

    def is_unchanged(self) -> bool:
        """Whether the query has neither begun to run nor committed an epoch since the beginning."""
        return (self._log.read(), self._log.committed()) == (self._starts, self._epoch)

    def write(self, divisions: Sequence[OperatorDivision]) -> PlanFile:
        """Write the new files; return the plan file that they need."""
        self._copy_positions()
        divide = _DivideFiles(self._old, self._file, {each.before.name: each for each in divisions})
        begun = self._spark.createDataFrame(
            [
                (each.after.name, bucket, MANIFEST, bytearray(manifest.to_json()))
                for each in divisions
                for bucket, manifest in zip(each.after.buckets, each.new_manifests, strict=True)
            ],
            _PLACED_DDL,
        )
        divided = begun.unionAll(self._places().mapInArrow(divide.run, _PLACED_DDL))
        by_bucket = divided.repartition("operator", "bucket").sortWithinPartitions("operator", "bucket")
        by_bucket.mapInArrow(_WriteFiles(self._new, self._file).run, _PLACE_DDL).collect()
        for run, start in enumerate(self._starts):
            self._new_log.add(run, start)
        self._copy_notes()
        return self._change.plan

    def _copy_positions(self) -> None:
        for number, part in enumerate(self._physical.inputs):
            if part.branches:
                continue
            for task in range(self._starts[0].tasks[part.input.alias]):
                place = f"inputs/{number}/{task}"
                stored = EpochStore(f"{self._old}/{place}", self._file).get(POSITIONS)
                assert stored is not None  # every task of an epoch writes them
                store = EpochStore(f"{self._new}/{place}", None)
                store.put(POSITIONS, stored)
                store.write(self._file)

    def _copy_notes(self) -> None:
        """Keep what a sink has noted: the query may have been killed in an epoch whose rows it must take back."""
        if self._storage.names(notes := f"{self._old}/{SINK_FOLDER}"):
            self._storage.copy(notes, f"{self._new}/{SINK_FOLDER}")

    def _places(self) -> DataFrame:
        places = [(spec.name, bucket) for spec in self._change.before for bucket in spec.buckets]
        return self._spark.createDataFrame(places, _PLACE_DDL).repartition(len(places))


def _opened(folder: str, file: str, operator: str, bucket: int) -> EpochStore:
    return EpochStore(f"{folder}/operators/{operator}/{bucket}", file)


def _placed(operator: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    operators = pa.array([operator] * batch.num_rows, pa.string())
    return pa.RecordBatch.from_arrays([operators, *batch.columns], schema=_PLACED_SCHEMA)


@dataclass(frozen=True, slots=True)
class _ReadManifests:
    """Reads the manifests of buckets; one that has none lacks a file."""

    folder: str
    file: str

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for operator, bucket in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if (value := _opened(self.folder, self.file, operator, bucket).get(MANIFEST)) is not None:
                    yield _placed(operator, entries(bucket, {MANIFEST: value}))


@dataclass(frozen=True, slots=True)
class _DivideFiles:
    """Divides the buckets that are named; yields the entries of new ones."""

    folder: str
    file: str
    divisions: Mapping[str, OperatorDivision]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with worker_task():
            for batch in batches:
                for operator, bucket in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    store = _opened(self.folder, self.file, operator, bucket)
                    for found in DivideTask(self.divisions[operator]).divided(bucket, store):
                        yield _placed(operator, found)


@dataclass(frozen=True, slots=True)
class _WriteFiles:
    """Writes the files of new buckets, whose entries come one bucket after the other; yields which were written."""

    folder: str
    file: str

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with worker_task():
            for (operator, bucket), values in groupby(self._rows(batches), key=itemgetter(0, 1)):
                store = _BucketFiles(f"{self.folder}/operators/{operator}/{bucket}", self.file)
                fill(store, ((0, name, value) for _, _, name, value in values), [""])
                store.close()
                yield pa.RecordBatch.from_pydict({"operator": [operator], "bucket": pa.array([bucket], pa.int32())})

    def _rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, int, str, bytes]]:
        for batch in batches:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class _BucketFiles:
    """A bucket's store that is only written to, in files of limited size; the last one has the name that counts."""

    def __init__(self, folder: str, file: str) -> None:
        self._folder, self._file = folder, file
        self._store = EpochStore(folder, None)
        self._held, self._parts = 0, 0

    def get(self, name: str) -> bytes | None:
        return self._store.get(name)

    def put(self, name: str, value: bytes) -> None:
        self._store.put(name, value)
        self._held += len(value)
        if self._held >= _FILE_BYTES:
            # sorts before the last one, and is deleted like any other file once nothing in it is live
            part = f"{self._file.removesuffix('.state')}-{self._parts:06}.state"
            self._store.write(part)
            self._store = EpochStore(self._folder, part)
            self._held, self._parts = 0, self._parts + 1

    def delete(self, name: str) -> None:
        self._store.delete(name)

    def close(self) -> None:
        self._store.write(self._file)
