"""A copy of a checkpoint as its last committed batch has left it, from which a query can be started: a savepoint.

Files of Spark and of Watersmeet are never changed once they are there, so the query may run meanwhile: what is copied
is of one batch, and of that which was planned after it.  If the query deletes a file before it is copied, all is copied
again, as of a later batch.

The copy has ids of its own.  Spark runs one query of an id at a time, and sinks ignore batches that they have seen from
a query.  plan.json is written last: what was broken off is no checkpoint.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from watersmeet.checksums import read_sealed, sealed
from watersmeet.errors import CheckpointError
from watersmeet.runtime.inspection.files import Files
from watersmeet.runtime.inspection.hadoop_checksums import checksum_name
from watersmeet.runtime.inspection.stored_query import StoredQuery, consistently, epoch_file
from watersmeet.runtime.inspection.verify import verify
from watersmeet.runtime.plan_file import said_file
from watersmeet.settings.query_settings import REAL_TIME
from watersmeet.state.epoch_store import EpochStore
from watersmeet.state.spark_store.damage import MissingFileError

_SMALL_FOLDERS = ("_metadata", "_stateSchema")
_PATHS = "stateSchemaFilePaths"


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied: the batch as of which, whether one after it was planned, and how much."""

    target: str
    batch: int
    planned: bool
    files: int
    rows: int
    nbytes: int


def copy_checkpoint(folder: str, target: str) -> Copied:
    """Copy a checkpoint to a folder that is not there or empty, and verify the copy.

    Raises ``CheckpointError`` if the checkpoint has no committed batch or is damaged, and if the target has files or
    is in the checkpoint.
    """
    place, source = Files(target), Files(folder)
    if place.filesystem == source.filesystem and f"{place.root}/".startswith(f"{source.root}/"):
        raise CheckpointError(f"{target} is in the checkpoint that is copied", hint="name a folder outside of it")
    if place.infos():
        raise CheckpointError(
            f"{target} holds files already", hint="name another folder, or delete that one if a copy was broken off"
        )
    copied = consistently(folder, lambda query: _Copy(query, place).made())
    if faults := verify(target).faults:
        place.delete("plan.json")  # no query starts from it
        raise CheckpointError(
            f"the copy {target} is damaged: {faults[0].what}", hint="delete it, and verify the checkpoint itself"
        )
    return copied


@dataclass(slots=True)
class _Copy:
    query: StoredQuery
    target: Files
    files: int = 0

    def made(self) -> Copied:
        query, plan = self.query, self.query.plan
        if query.files.infos("pieces"):
            raise CheckpointError(
                f"{query.files.folder} reads PostgreSQL by a replication slot, and of two checkpoints only one can go "
                "on with it",
                hint="to move the checkpoint, stop the query and move the folder; to try another query, start it on a "
                "new checkpoint: it begins with a snapshot of its own",
            )
        if query.batch is None:
            raise CheckpointError(
                f"no batch of {query.files.folder} has been committed: there is nothing to copy",
                hint="start the query on a new checkpoint instead",
            )
        offsets = query.files.numbers(f"{plan.spark}/offsets")
        planned = query.batch + 1 in offsets
        last = query.batch + planned
        id = self._new_id()
        for log, most in (("offsets", last), ("commits", query.batch)):
            for number in query.files.numbers(f"{plan.spark}/{log}"):
                # older entries may be purged meanwhile, and nothing needs them
                if query.batch - 1 <= number <= most:
                    self._copy(f"{plan.spark}/{log}/{number}")
        self._copy_folder(f"{plan.spark}/sources")
        self._copy_folder("control")
        if plan.mode == REAL_TIME:
            self._copy_epochs()
        else:
            self._copy_state()
        self._copy_notes("hot_keys", *id)
        self._copy_notes("sizes", *id)
        for name in ("counters.json", *map(said_file, range(plan.generation + 1))):
            if query.files.exists(name):
                self._copy(name)
        new_plan = plan.model_copy(update={"id": uuid.uuid4().hex})
        self.target.write("plan.json", sealed(new_plan.model_dump_json(indent=2)))
        manifests = [bucket.manifest for bucket in query.buckets]
        rows = sum(segment.rows for manifest in manifests for segment in manifest.segments)
        nbytes = sum(manifest.nbytes for manifest in manifests)
        batch = query.batch + plan.batches_before
        return Copied(self.target.folder, batch, planned, self.files, rows, nbytes)

    def _new_id(self) -> tuple[str, str]:
        """Give the copy an id of Spark's; return the old one and the new one."""
        name = f"{self.query.plan.spark}/metadata"
        try:
            old = str(json.loads(self.query.files.read(name) or b"")["id"])
        except (ValueError, KeyError, TypeError):
            raise CheckpointError(
                f"{self.query.files.folder}/{name} does not hold the query's id", hint="restore it from a copy"
            ) from None
        new = str(uuid.uuid4())
        self.target.write(name, json.dumps({"id": new}).encode())
        return old, new

    def _copy_state(self) -> None:
        state = f"{self.query.plan.spark}/state"
        for partition in self.query.partitions.values():
            for path in partition.files:
                self._copy(path.removeprefix(f"{self.query.files.root}/"))
        for inner in self._all_in(state):
            folders = inner.split("/")[:-1]
            if any(name in folders for name in _SMALL_FOLDERS):
                self._copy_described(inner)

    def _copy_described(self, name: str) -> None:
        """Copy a description of the state; it may name files of the checkpoint by their whole paths."""
        content = self.query.files.read(name)
        version, newline, text = (content or b"").partition(b"\n")
        if content is None or _PATHS.encode() not in text:
            self._copy(name)
            return
        fields = json.loads(text)
        inner = f"/{self.query.plan.spark}/state/"
        root = self.target.folder if "://" in self.target.folder else f"file:{self.target.root}"
        for store in fields["stateStoreInfo"]:
            store[_PATHS] = [f"{root}{inner}{path.rpartition(inner)[2]}" for path in store[_PATHS]]
        self.target.write(name, version + newline + json.dumps(fields, separators=(",", ":")).encode())
        self.files += 1

    def _copy_epochs(self) -> None:
        query, plan = self.query, self.query.plan
        assert query.batch is not None
        self._copy_folder(f"{plan.epochs}/runs")
        file = epoch_file(query.files, plan, query.batch)
        folders = {inner.rpartition("/")[0] for inner in self._all_in(plan.epochs) if inner.endswith(f"/{file}")}
        for folder in sorted(folders):
            for name in EpochStore(f"{query.files.folder}/{folder}", file).files:
                self._copy(f"{folder}/{name}")

    def _copy_notes(self, folder: str, old: str, new: str) -> None:
        """Copy what is noted of batches under Spark's id of the query: hot keys, and sizes of buckets."""
        assert self.query.batch is not None
        for inner in self._all_in(f"{folder}/{old}"):
            parts = inner.split("/")
            batch = parts[3].removesuffix(".json")
            if not batch.isdecimal() or int(batch) > self.query.batch:
                continue
            content = self.query.files.read(inner)
            if content is None:
                raise self._vanished(inner)
            if inner.endswith(".json"):
                fields, _ = read_sealed(content)
                if "name" in fields:
                    fields["name"] = f"{new}/{parts[2]}/{batch}"
                    content = sealed(json.dumps(fields))
            self.target.write("/".join([folder, new, *parts[2:]]), content)
            self.files += 1

    def _copy_folder(self, name: str) -> None:
        for inner in self._all_in(name):
            self._copy(inner)

    def _all_in(self, name: str) -> Iterator[str]:
        """Yield all files in a folder, without hidden ones."""
        for info in self.query.files.infos(name, recursive=True):
            if info.is_file and not info.base_name.startswith("."):
                yield info.path.removeprefix(f"{self.query.files.root}/")

    def _copy(self, name: str) -> None:
        try:
            self.query.files.copy(name, self.target, name)
        except FileNotFoundError:
            raise self._vanished(name) from None
        folder, _, own = name.rpartition("/")
        beside = f"{folder}/{checksum_name(own)}" if folder else checksum_name(own)
        if self.query.files.exists(beside):
            self.query.files.copy(beside, self.target, beside)
        self.files += 1

    def _vanished(self, name: str) -> CheckpointError:
        return MissingFileError(
            f"{self.query.files.folder}/{name} is missing", hint="restore the checkpoint from a copy"
        )
