"""Segments: the immutable pieces of an operator's durable state.

A segment holds rows of one relation, as Arrow IPC streams (lz4) of at most ``MAX_CHUNK_BYTES`` each: large values
are slow in a state store.  Its id is made of the step that wrote it, the relation and a hash of its content, so that
two attempts at one batch that saw rows in another order never share an id by accident.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIME
from watersmeet.state.store import Store

MAX_CHUNK_BYTES = 4 * 1024 * 1024
#: So few rows are not parted: each segment costs a step some milliseconds, and they are soon merged with others.
FEW_ROWS = 10_000
#: A worker has one core, and of few rows it took longer to call threads than to compress.
_WRITE_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


@dataclass(frozen=True, slots=True)
class Segment:
    """What the manifest knows of a segment: how much, and which event times (inclusive) it holds."""

    id: str
    relation: str
    rows: int
    nbytes: int
    low: int
    high: int
    chunks: int


def write_segment(store: Store, step: int, relation: str, table: pa.Table) -> Segment:
    """Put the rows (at least one) into the store; what the manifest must remember comes back."""
    pieces = max(1, -(-table.nbytes // MAX_CHUNK_BYTES))
    per_chunk = -(-table.num_rows // pieces)
    payloads = [_encode(table.slice(start, per_chunk)) for start in range(0, table.num_rows, per_chunk)]
    digest = hashlib.blake2b(digest_size=8)
    for payload in payloads:
        digest.update(payload)
    times = pc.min_max(table[TIME])
    segment = Segment(
        id=f"{step}-{relation}-{digest.hexdigest()}",
        relation=relation,
        rows=table.num_rows,
        nbytes=table.nbytes,
        low=times["min"].as_py(),
        high=times["max"].as_py(),
        chunks=len(payloads),
    )
    for number, payload in enumerate(payloads):
        store.put(_name(segment.id, number), payload)
    return segment


def read_segment(store: Store, segment: Segment) -> pa.Table:
    """The rows of a segment that stands in the manifest."""
    tables = []
    for number in range(segment.chunks):
        payload = store.get(_name(segment.id, number))
        if payload is None:
            raise LookupError(f"segment {segment.id} stands in the manifest, but chunk {number} is not in the store")
        tables.append(pa.ipc.open_stream(pa.py_buffer(payload)).read_all())
    return pa.concat_tables(tables)


def drop_segment(store: Store, segment: Segment) -> None:
    """Take all chunks of a segment out of the store."""
    for number in range(segment.chunks):
        store.delete(_name(segment.id, number))


def split_by_time(table: pa.Table, width: int | None, *, most: int = 16, few: int = FEW_ROWS) -> list[pa.Table]:
    """The rows cut into partitions of ``width`` on the time axis, so that whole segments fall out of a window.

    At most ``most`` pieces: a batch that spans more is cut into wider ones (width doubled until it fits).  Fewer
    rows than ``few`` stay together.
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
