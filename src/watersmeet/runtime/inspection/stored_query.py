"""A query's durable state after its last committed batch, read without Spark.

What a query that runs deletes meanwhile is of older batches.  Whoever finds a file gone looks whether a batch has been
committed since, and begins again with that one (``consistently``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import ValidationError

from watersmeet.checksums import DamageError, Seal, read_sealed
from watersmeet.engine.routing import murmur3_int
from watersmeet.errors import CheckpointError
from watersmeet.runtime.inspection.described import OperatorText, operators_of
from watersmeet.runtime.inspection.files import Files
from watersmeet.runtime.plan_file import PlanFile, decode_plan
from watersmeet.runtime.real_time.epochs import RunStart, file_name, next_run
from watersmeet.runtime.worker_tasks import state_prefix
from watersmeet.settings.query_settings import REAL_TIME
from watersmeet.state.epoch_store import EpochStore
from watersmeet.state.manifest import MANIFEST, Manifest, decode_manifest
from watersmeet.state.spark_store.damage import RESTORE, unreadable
from watersmeet.state.spark_store.partition import Partition

T = TypeVar("T")
_ATTEMPTS = 5
#: Settings that Spark notes with each batch, and the only values with which its state is read here.
_FORMATS = {
    "spark.sql.streaming.stateStore.encodingFormat": "unsaferow",
    "spark.sql.streaming.stateStore.rowChecksum.enabled": "false",
}


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket of an operator: its manifest, and the values that the manifest names."""

    operator: OperatorText
    number: int
    manifest: Manifest
    get: Callable[[str], bytes | None]

    def put(self, name: str, value: bytes) -> None:
        """Refuse: nothing is written here."""
        raise NotImplementedError

    def delete(self, name: str) -> None:
        """Refuse: nothing is written here."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """What stands in a checkpoint.

    ``batch`` is Spark's number of the last committed batch or epoch; None: none yet.
    """

    files: Files
    plan: PlanFile
    operators: tuple[OperatorText, ...]
    batch: int | None
    buckets: tuple[Bucket, ...] = ()
    partitions: Mapping[tuple[int, int], Partition] = field(default_factory=dict)

    def buckets_of(self, operator: str) -> list[Bucket]:
        """The buckets of an operator."""
        return [bucket for bucket in self.buckets if bucket.operator.name == operator]


def consistently(folder: str, work: Callable[[StoredQuery], T]) -> T:
    """Do something with what stands in a checkpoint; if the query deletes it meanwhile, again with the next batch.

    Raises ``CheckpointError`` if there is no checkpoint, if it is damaged, or if the query is faster each time.
    """
    for attempt in range(_ATTEMPTS):
        plan = read_plan(Files(folder))
        before = committed(Files(folder), plan)
        try:
            return work(read_query(folder))
        except CheckpointError:
            now = read_plan(Files(folder))
            if (committed(Files(folder), now), now.generation) == (before, plan.generation):
                raise
            if attempt == _ATTEMPTS - 1:
                raise CheckpointError(
                    f"the query of {folder} runs, and deletes its files sooner than they can be read",
                    hint="stop the query, or try again when it has less to do",
                ) from None
    raise AssertionError  # pragma: no cover


def read_query(folder: str) -> StoredQuery:
    """Read the plan, and the manifests of all buckets; ``CheckpointError`` if anything is missing or damaged."""
    files = Files(folder)
    plan = read_plan(files)
    operators = tuple(operators_of(plan.operators, f"{files.folder}/plan.json"))
    batch = committed(files, plan)
    if batch is None:
        return StoredQuery(files, plan, operators, None)
    if plan.mode == REAL_TIME:
        return StoredQuery(files, plan, operators, batch, tuple(_epoch_buckets(files, plan, operators, batch)))
    partitions = open_partitions(files, plan, batch)
    found = tuple(_spark_buckets(files, operators, partitions))
    return StoredQuery(files, plan, operators, batch, found, partitions)


def read_plan(files: Files) -> PlanFile:
    """Read plan.json; ``CheckpointError`` if it is missing, damaged or of another version."""
    content = files.read("plan.json")
    if content is None:
        raise CheckpointError(
            f"{files.folder} is not the checkpoint of a query: it has no plan.json",
            hint="name the folder that holds plan.json; if it was there, restore it from a copy",
        )
    return decode_plan(content, f"{files.folder}/plan.json")


def committed(files: Files, plan: PlanFile) -> int | None:
    """Spark's number of the last batch that was committed."""
    return max(files.numbers(f"{plan.spark}/commits"), default=None)


# -- real time ---------------------------------------------------------------------------------------------------------


def runs_of(files: Files, plan: PlanFile) -> list[RunStart]:
    """All runs of a query in real time, in order; ``CheckpointError`` if a file is missing or damaged."""
    folder = f"{plan.epochs}/runs"
    names = [name for name in files.names(folder) if name.endswith(".json")]
    if names != [f"{number:06}.json" for number in range(len(names))]:
        raise CheckpointError(f"{files.folder}/{folder} lacks a file: it holds {', '.join(names)}", hint=RESTORE)
    return [_run(files, f"{folder}/{name}", number) for number, name in enumerate(names)]


def _run(files: Files, name: str, number: int) -> RunStart:
    try:
        fields, seal = read_sealed(files.read(name) or b"")
        start = RunStart.model_validate(fields)
        if seal is Seal.WRONG or start.run not in (None, number):
            raise DamageError
    except (DamageError, ValidationError):
        raise CheckpointError(
            f"{files.folder}/{name} is damaged: it is not the beginning of a run", hint=RESTORE
        ) from None
    return start


def epoch_file(files: Files, plan: PlanFile, batch: int) -> str:
    """The name of the files that the last committed epoch has written."""
    base = next_run(runs_of(files, plan), batch)[2]
    if base is None:
        raise CheckpointError(
            f"{files.folder}/{plan.epochs}/runs does not tell which run has committed epoch {batch}", hint=RESTORE
        )
    return file_name(batch, base)


def _epoch_buckets(files: Files, plan: PlanFile, operators: tuple[OperatorText, ...], batch: int) -> Iterator[Bucket]:
    file = epoch_file(files, plan, batch)
    for operator in operators:
        for number in operator.buckets:
            folder = f"{files.folder}/{plan.epochs}/operators/{operator.name}/{number}"
            store = EpochStore(folder, file)
            yield _bucket(operator, number, store.get, f"{folder}/{file}")


# -- micro-batches -----------------------------------------------------------------------------------------------------


def open_partitions(files: Files, plan: PlanFile, batch: int) -> dict[tuple[int, int], Partition]:
    """Open the state after a batch, by the number of Spark's operator and of its partition."""
    _require_formats(files, plan, batch)
    found = {}
    for operator in files.numbers(f"{plan.spark}/state"):
        folder = f"{plan.spark}/state/{operator}"
        numbers = files.numbers(folder)
        if numbers != list(range(len(numbers))):
            raise CheckpointError(f"{files.folder}/{folder} lacks a partition: it holds {numbers}", hint=RESTORE)
        for number in numbers:
            found[operator, number] = Partition(files.filesystem, files.path(f"{folder}/{number}"), batch + 1)
    if not found:
        raise CheckpointError(f"{files.folder}/{plan.spark}/state is missing", hint=RESTORE)
    return found


def _require_formats(files: Files, plan: PlanFile, batch: int) -> None:
    """Raise ``CheckpointError`` if Spark was told to encode its state otherwise."""
    name = f"{plan.spark}/offsets/{batch}"
    lines = (files.read_text(name) or "").split("\n")
    for setting, known in _FORMATS.items():
        if len(lines) > 1 and f'"{setting}":"' in lines[1] and f'"{setting}":"{known}"' not in lines[1]:
            raise unreadable(f"{files.folder}/{plan.spark}/state", f"{setting} is not {known}")


def _spark_buckets(
    files: Files, operators: tuple[OperatorText, ...], partitions: Mapping[tuple[int, int], Partition]
) -> Iterator[Bucket]:
    numbers = sorted({operator for operator, _ in partitions})
    for operator in operators:
        place = next((each for each in numbers if _holds(operator, each, partitions) is not None), None)
        if place is None:
            raise CheckpointError(f"the state of {operator.name} is missing in {files.folder}", hint=RESTORE)
        prefix = _holds(operator, place, partitions) or ""
        for number in operator.buckets:
            partition = partition_of(number, place, partitions)

            def get(
                name: str, *, of: Partition = partition, number: int = number, prefix: str = prefix
            ) -> bytes | None:
                return of.get(number, prefix + name)

            yield _bucket(operator, number, get, partition.folder)


def partition_of(bucket: int, operator: int, partitions: Mapping[tuple[int, int], Partition]) -> Partition:
    """The partition in which Spark has the state of a bucket."""
    count = sum(1 for each, _ in partitions if each == operator)
    return partitions[operator, murmur3_int(bucket) % count]


def _holds(operator: OperatorText, place: int, partitions: Mapping[tuple[int, int], Partition]) -> str | None:
    """How names of an operator's values begin in the state of Spark's operator; None if they are not there."""
    first = operator.buckets[0]
    partition = partition_of(first, place, partitions)
    for prefix in ("", state_prefix(operator.name)):
        stored = partition.get(first, prefix + MANIFEST)
        if stored is not None and _decoded(operator, stored, partition.folder).fingerprint == operator.fingerprint:
            return prefix
    return None


def _bucket(operator: OperatorText, number: int, get: Callable[[str], bytes | None], where: str) -> Bucket:
    stored = get(MANIFEST)
    if stored is None:
        raise CheckpointError(f"{where} has no manifest of bucket {number} of {operator.name}", hint=RESTORE)
    manifest = _decoded(operator, stored, where)
    if manifest.fingerprint != operator.fingerprint:
        raise CheckpointError(
            f"{where} holds the state of another query plan in bucket {number} of {operator.name}", hint=RESTORE
        )
    return Bucket(operator, number, manifest, get)


def _decoded(operator: OperatorText, stored: bytes, where: str) -> Manifest:
    try:
        return decode_manifest(stored, range(len(operator.inputs)))
    except CheckpointError as error:
        error.message = f"{where}: {error.message}"
        raise
