"""Frames: how rows cross Spark.

One Spark row of ``FRAME_SCHEMA`` carries thousands of rows as an Arrow IPC stream.  All rows of a ROWS frame go to one
bucket and one input of the receiving operator; results of an operator that serves several queries have the query's
number as their input.  COPIES are rows of hot keys that another bucket counts (hot_keys.py).
SIDE and COUNTER frames are forwarded to the end of the query, bundles to the operator that they name.  The ``kind``
defines the other fields:

========== ============================================ ============================== ======================
kind       payload                                      ``part``                       ``frontier``
========== ============================================ ============================== ======================
ROWS       rows of the input's schema                   the file that has the payload  how many rows
COPIES     the same                                     the same                       the same
MARK       without a frontier, the task's report; with  where the frontier comes from  the frontier itself
           one, the last ``$tie`` there; or empty
CONTROL    JSON control event                           –                              –
SIDE       rows of the side output (``SIDE_SCHEMA``)    the file that has the payload  –
COUNTER    counters by name, as JSON                    which bucket of which operator –
BUNDLE     frames for one bucket (``FRAME_SCHEMA``)     the operator that they are for the bucket
RESULTS    rows that Spark projects; empty: their end   the branch of the input        the sender's, at the end
FILLER     empty                                        –                              –
DECODED    empty: the end of rows that Spark decoded    in the first one, a socket     –
========== ============================================ ============================== ======================

A shuffle of Spark does not keep the order of rows, and no result depends on the order of frames.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import pyarrow as pa

FRAME_SCHEMA = pa.schema(
    [
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("input", pa.int32(), nullable=False),
        pa.field("part", pa.string(), nullable=False),
        pa.field("kind", pa.int32(), nullable=False),
        pa.field("frontier", pa.int64(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
FRAME_DDL = (
    "bucket INT NOT NULL, input INT NOT NULL, part STRING NOT NULL, "
    "kind INT NOT NULL, frontier BIGINT NOT NULL, payload BINARY NOT NULL"
)

#: Side output: late, quarantined and evicted rows.
SIDE_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),  # 'late', 'quarantined' or 'evicted'
        pa.field("source", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("raw", pa.string()),
    ]
)

#: The size of a frame's payload, about: large values are slow in Spark's shuffle and state store.
MAX_PAYLOAD_BYTES = 4 * 1024 * 1024
#: Arrow's own, which it would look for in the environment at each call.
_WRITE_OPTIONS = pa.ipc.IpcWriteOptions()


class FrameKind(IntEnum):
    """The kind of a frame."""

    ROWS = 0
    MARK = 1
    CONTROL = 2
    SIDE = 3
    COUNTER = 4
    COPIES = 5
    BUNDLE = 6
    FILLER = 7
    RESULTS = 8
    DECODED = 9

    @property
    def has_rows(self) -> bool:
        """Whether the payload is rows of an operator's input."""
        return self in (FrameKind.ROWS, FrameKind.COPIES)

    @property
    def is_bulk(self) -> bool:
        """Whether the payload is rows, of an input or of the side output, and so may be large."""
        return self.has_rows or self is FrameKind.SIDE


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame; the module says what the fields hold for each kind."""

    bucket: int
    input: int
    part: str
    kind: FrameKind
    frontier: int
    payload: bytes | pa.Buffer


def encode_table(table: pa.Table | pa.RecordBatch) -> pa.Buffer:
    """Encode a table as an Arrow IPC stream, in a buffer of exactly its size."""
    measure = pa.MockOutputStream()
    _write_stream(table, measure)
    payload = pa.allocate_buffer(measure.size())
    _write_stream(table, pa.FixedSizeBufferWriter(payload))
    return payload


def decode_table(payload: bytes | pa.Buffer) -> pa.Table:
    """Decode an Arrow IPC stream without a copy: the table's buffers point into ``payload``."""
    return pa.ipc.open_stream(pa.py_buffer(payload)).read_all()


def row_frames(table: pa.Table, *, bucket: int, input: int, kind: FrameKind = FrameKind.ROWS) -> Iterator[Frame]:
    """Yield the table as frames of equally many rows, of at most ``MAX_PAYLOAD_BYTES`` on average."""
    pieces = max(1, -(-table.nbytes // MAX_PAYLOAD_BYTES))
    step = max(1, -(-table.num_rows // pieces))
    for start in range(0, table.num_rows, step):
        rows = table.slice(start, step).combine_chunks()
        yield Frame(bucket, input, "", kind, rows.num_rows, encode_table(rows))


def side_frames(table: pa.Table, *, bucket: int) -> Iterator[Frame]:
    """Yield rows of the side output (``SIDE_SCHEMA``) as ``row_frames`` does."""
    return (replace(frame, frontier=0) for frame in row_frames(table, bucket=bucket, input=0, kind=FrameKind.SIDE))


def side_rows(kind: str, source: str, reason: pa.Array, raw: pa.Array) -> pa.Table:
    """Return rows of the side output; ``kind`` is late, quarantined or evicted."""
    count = len(raw)
    return pa.table([pa.array([kind] * count), pa.array([source] * count), reason, raw], schema=SIDE_SCHEMA)


def mark_frame(bucket: int, input: int, part: str, frontier: int, payload: bytes = b"") -> Frame:
    """Return a mark: with a frontier, and the last ``$tie`` there; or with none, and the sender's report."""
    return Frame(bucket, input, part, FrameKind.MARK, frontier, payload)


def counter_frame(bucket: int, sender: str, counters: Mapping[str, int]) -> Frame:
    """Return all counters that a bucket of an operator reports, in one frame."""
    return Frame(bucket, 0, sender, FrameKind.COUNTER, 0, json.dumps(counters).encode())


def counters_in(frame: Frame) -> dict[str, int]:
    """Return the counters of a COUNTER frame."""
    return dict(json.loads(bytes(frame.payload)))


def to_record_batch(frames: Iterable[Frame]) -> pa.RecordBatch:
    """Return frames as one Arrow batch of ``FRAME_SCHEMA``."""
    rows = list(frames)
    heads = FRAME_SCHEMA.names[:-1]
    columns = [pa.array([getattr(frame, name) for frame in rows], FRAME_SCHEMA.field(name).type) for name in heads]
    columns.append(pa.array([bytes(frame.payload) for frame in rows], pa.binary()))
    return pa.RecordBatch.from_arrays(columns, schema=FRAME_SCHEMA)


def from_record_batch(batch: pa.RecordBatch) -> Iterator[Frame]:
    """Yield the frames of an Arrow batch of ``FRAME_SCHEMA``; payloads are not copied."""
    heads = [batch.column(name).to_pylist() for name in FRAME_SCHEMA.names[:-1]]
    payload = batch.column("payload")
    for i, (bucket, input, part, kind, frontier) in enumerate(zip(*heads, strict=True)):
        yield Frame(bucket, input, part, FrameKind(kind), frontier, payload[i].as_buffer())


def bundled(frames: Iterable[Frame], operator: int) -> Iterator[Frame]:
    """Yield one frame per bucket with all frames for it, in order: Spark takes long for a row, whatever is in it.

    ``input`` of a bundle is the number of the operator that all its frames are for.
    """
    by_bucket: dict[int, list[Frame]] = {}
    for frame in frames:
        by_bucket.setdefault(frame.bucket, []).append(frame)
    for bucket, of_bucket in by_bucket.items():
        yield Frame(bucket, operator, "", FrameKind.BUNDLE, 0, encode_table(to_record_batch(of_bucket)))


def bundled_for(frames: Iterable[Frame], operator: str) -> Iterator[Frame]:
    """Yield one frame per bucket with all frames for it, in order, to be passed on to an operator of that name."""
    for bundle in bundled(frames, 0):
        yield replace(bundle, part=operator, frontier=bundle.bucket)


def received_by(frames: Iterable[Frame], operator: str) -> Iterator[Frame]:
    """Yield frames; of a bundle for an operator of that name, those in it."""
    for frame in frames:
        if frame.kind is FrameKind.BUNDLE and frame.part == operator:
            yield from unbundled(frame)
        else:
            yield frame


def passed_on(frame: Frame, buckets: Sequence[int]) -> Frame:
    """Return a frame of an earlier operator, addressed to the next one, which has these buckets.

    A bundle stays in its own bucket where there is one of that number; other frames go to the first.
    """
    own = frame.frontier if frame.kind is FrameKind.BUNDLE else buckets[0]
    return replace(frame, bucket=own if own in buckets else buckets[0])


def filler(bucket: int) -> Frame:
    """A frame that says nothing: Spark hands a row to a Python function when the next one is there."""
    return Frame(bucket, 0, "", FrameKind.FILLER, 0, b"")


def with_fillers(frames: Iterable[Frame], *, behind_shuffle: bool = False) -> Iterator[Frame]:
    """Yield each frame, and a filler after it that goes the same way.

    A task ``behind_shuffle`` may keep back its last row until it has another one, so two fillers are the last.
    """
    bucket = None
    for frame in frames:
        yield frame
        yield filler(bucket := frame.bucket)
    if behind_shuffle and bucket is not None:
        yield filler(bucket)


def unbundled(bundle: Frame) -> Iterator[Frame]:
    """Yield the frames of a bundle."""
    for batch in decode_table(bundle.payload).to_batches():
        yield from from_record_batch(batch)


def _write_stream(table: pa.Table | pa.RecordBatch, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, table.schema, options=_WRITE_OPTIONS) as writer:
        writer.write(table)
