"""The work of one task: the state of some old buckets of an operator, divided into that of its new ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from tempfile import TemporaryFile
from typing import IO

import pyarrow as pa

from watersmeet.engine.hashing import xxhash64
from watersmeet.engine.rescale import divide
from watersmeet.runtime.rescale.change import OperatorDivision
from watersmeet.runtime.worker_tasks import worker_task
from watersmeet.state.manifest import MANIFEST, Manifest, decode_manifest
from watersmeet.state.segments import Segment
from watersmeet.state.store import NamedStore, Store

#: What a bucket's store holds, as rows of Spark.
ENTRY_DDL = "bucket INT NOT NULL, name STRING NOT NULL, value BINARY NOT NULL"
ENTRY_SCHEMA = pa.schema(
    [
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)
#: The name under which a segment's place in the manifest travels, followed by its id.
DESCRIBED = "described/"


@dataclass(frozen=True, slots=True)
class DivideTask:
    """Divides the buckets whose entries come to this task; yields entries of the new buckets."""

    division: OperatorDivision

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Entries of old buckets, each bucket's in one task, to entries of new ones."""
        with worker_task(), TemporaryFile() as file:
            stores: dict[int, _FileStore] = {}
            for batch in batches:
                for bucket, name, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    stores.setdefault(bucket, _FileStore(file)).put(name, value)
            for bucket, store in stores.items():
                yield from self.divided(bucket, store)

    def divided(self, bucket: int, store: Store) -> Iterator[pa.RecordBatch]:
        """Yield the entries of new buckets that come of an old one."""
        division = self.division
        stored = store.get(MANIFEST)
        assert stored is not None  # the driver has read it too
        manifest = decode_manifest(stored, range(len(division.before.inputs)))
        index = division.before.buckets.index(bucket)
        to_manifests, hot_keys = division.new_manifests, division.hot_keys
        pieces = divide(division.before, index, manifest, store, to_manifests, xxhash64, hot_keys, division.conversion)
        for piece in pieces:
            to = division.after.buckets[piece.bucket]
            yield entries(to, {**piece.values, f"{DESCRIBED}{piece.segment.id}": _encoded(piece.segment)})


def entries(bucket: int, values: dict[str, bytes]) -> pa.RecordBatch:
    """Values of a bucket's store as rows."""
    columns = [[bucket] * len(values), list(values), list(values.values())]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ENTRY_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ENTRY_SCHEMA)


def fill(store: Store, entries: Iterable[tuple[int, str, bytes]], prefixes: Sequence[str]) -> None:
    """Write all entries of a new bucket to its store: those of each operator, by number, with the prefix of its names.

    Segments are named in the operator's manifest, which comes without them.
    """
    stores = [NamedStore(store, prefix) for prefix in prefixes]
    manifests: dict[int, Manifest] = {}
    segments: dict[int, list[Segment]] = {operator: [] for operator in range(len(prefixes))}
    for operator, name, value in entries:
        if name == MANIFEST:
            manifests[operator] = decode_manifest(value, ())
        elif name.startswith(DESCRIBED):
            segments[operator].append(Segment(**json.loads(value)))
        else:
            stores[operator].put(name, value)
    for operator, manifest in manifests.items():
        manifest.segments = sorted(segments[operator], key=lambda each: (each.relation, each.low, each.id))
        stores[operator].put(MANIFEST, manifest.to_json())


def _encoded(segment: Segment) -> bytes:
    return json.dumps(asdict(segment)).encode()


class _FileStore:
    """A store in a file on the worker's disk: a bucket's state may not fit into memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file  # shared by the buckets of a task
        self._places: dict[str, tuple[int, int]] = {}

    def get(self, name: str) -> bytes | None:
        place = self._places.get(name)
        if place is None:
            return None
        self._file.seek(place[0])
        return self._file.read(place[1])

    def put(self, name: str, value: bytes) -> None:
        start = self._file.seek(0, 2)
        self._file.write(value)
        self._places[name] = (start, len(value))

    def delete(self, name: str) -> None:
        del self._places[name]
