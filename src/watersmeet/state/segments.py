"""Segments: the immutable pieces of an operator's durable state.

A segment holds rows of one relation, as Arrow IPC streams (lz4) of at most ``MAX_CHUNK_BYTES`` each: large values
are slow in a state store.  Its id consists of the step that wrote it, the relation and a hash of its content, so two
attempts at one batch that received rows in different orders write different ids.  A segment that is read is compared
with the hash, so rows that have changed in the store are never joined.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.checksums import checksum
from watersmeet.columns import TIME
from watersmeet.errors import CheckpointError
from watersmeet.kernels.row_bytes import table_bytes
from watersmeet.state.store import Store

MAX_CHUNK_BYTES = 4 * 1024 * 1024
#: Fewer rows than this are not split: each segment costs a step some milliseconds, and compaction soon merges them.
FEW_ROWS = 10_000
#: A worker has one core, and for few rows it takes longer to start threads than to compress.
_WRITE_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


@dataclass(frozen=True, slots=True)
class Segment:
    """What the manifest records of a segment: its size and its event times, ``low`` to ``high`` inclusive.

    ``nbytes`` is what its rows take in memory (kernels/row_bytes.py); segments of earlier versions have less.
    """

    id: str
    relation: str
    rows: int
    nbytes: int
    low: int
    high: int
    chunks: int

    def is_inside(self, low: int, high: int) -> bool:
        """Return whether all rows have ``low <= $t <= high``."""
        return low <= self.low and self.high <= high


def write_segment(store: Store, step: int | str, relation: str, table: pa.Table) -> Segment:
    """Write rows (at least one) to the store; return the segment to record in the manifest."""
    pieces = max(1, -(-table.nbytes // MAX_CHUNK_BYTES))
    per_chunk = -(-table.num_rows // pieces)
    payloads = [_encode(table.slice(start, per_chunk)) for start in range(0, table.num_rows, per_chunk)]
    times = pc.min_max(table[TIME])
    segment = Segment(
        id=f"{step}-{relation}-{checksum(payloads)}",
        relation=relation,
        rows=table.num_rows,
        nbytes=table_bytes(table),
        low=times["min"].as_py(),
        high=times["max"].as_py(),
        chunks=len(payloads),
    )
    for number, payload in enumerate(payloads):
        store.put(_name(segment.id, number), payload)
    return segment


def read_segment(store: Store, segment: Segment) -> pa.Table:
    """Read the rows of a segment of the manifest; raises what ``segment_values`` raises."""
    payloads = segment_values(store, segment).values()
    return pa.concat_tables([pa.ipc.open_stream(pa.py_buffer(payload)).read_all() for payload in payloads])


def segment_values(store: Store, segment: Segment) -> dict[str, bytes]:
    """Return what a store holds of a segment of the manifest, by name.

    Raises ``CheckpointError`` if the store lacks a chunk, or has another.
    """
    found: dict[str, bytes] = {}
    for number in range(segment.chunks):
        name = _name(segment.id, number)
        payload = store.get(name)
        if payload is None:
            raise _damaged(segment, f"its chunk {number} is not in the store")
        found[name] = payload
    if checksum(found.values()) != segment.id.rpartition("-")[2]:
        raise _damaged(segment, "its bytes are not those that were written")
    return found


def _damaged(segment: Segment, what: str) -> CheckpointError:
    return CheckpointError(
        f"the state is damaged: segment {segment.id} is in the manifest, but {what}",
        hint="restore the checkpoint from a copy, or start on a new one (its state begins empty)",
    )


def drop_segment(store: Store, segment: Segment) -> None:
    """Delete all chunks of a segment from the store."""
    for number in range(segment.chunks):
        store.delete(_name(segment.id, number))


def split_by_time(table: pa.Table, width: int | None, *, most: int = 16, few: int = FEW_ROWS) -> list[pa.Table]:
    """Split rows into time partitions of ``width``, so that whole segments fall out of a window.

    Returns at most ``most`` pieces: the width is doubled until they are few enough.  Fewer rows than ``few`` stay
    together, and so do all rows if ``width`` is None.
    """
    if table.num_rows == 0:
        return []
    if table.num_rows < few:
        return [table]
    times = table[TIME].to_numpy()
    low, high = int(times.min()), int(times.max())
    if width is None or low // width == high // width:
        return [table]
    while high // width - low // width >= most:
        width *= 2
    partition = times // width
    order = partition.argsort(kind="stable")
    cuts = [0, *((partition[order][1:] != partition[order][:-1]).nonzero()[0] + 1).tolist(), table.num_rows]
    by_time = table.take(order)
    return [by_time.slice(start, stop - start) for start, stop in pairwise(cuts)]


def _encode(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_WRITE_OPTIONS) as writer:
        writer.write_table(table)
    payload: bytes = sink.getvalue().to_pybytes()
    return payload


def _name(segment_id: str, chunk: int) -> str:
    return f"segment/{segment_id}/{chunk}"
