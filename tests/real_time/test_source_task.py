"""The task that follows a source: what it sends, in which order, and where the next epoch goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.columns import PACKED, PART, SEQUENCE
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.engine.frames import FRAME_SCHEMA, Frame, FrameKind, decode_table, from_record_batch, unbundled
from watersmeet.engine.projection import Projection
from watersmeet.engine.specs import PackSpec
from watersmeet.records.decoder import Decoded
from watersmeet.runtime.exchange import Exchange
from watersmeet.runtime.real_time import epochs, source_task
from watersmeet.runtime.real_time.epochs import Epochs
from watersmeet.runtime.real_time.source_task import FollowTask, LiveRestTask
from watersmeet.runtime.worker_records import RecordRows
from watersmeet.runtime.worker_tasks import PackTask

COLUMNS = pa.schema([("id", pa.int64()), ("$t", pa.int64())])
RAW = pa.schema([("value", pa.binary())])
BUCKETS = (3, 4)


@dataclass(frozen=True)
class Records:
    values: pa.Array
    partition: int

    def hidden(self, names: Sequence[str], numbers: np.ndarray) -> Mapping[str, pa.Array]:
        columns = {SEQUENCE: pa.array([b"%d" % number for number in numbers], pa.binary())}
        columns[PART] = pa.array([f"t-{self.partition}"] * len(numbers))
        return {name: columns[name] for name in names}

    def raw(self, numbers: np.ndarray) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self.values.take(pa.array(numbers))], schema=RAW)


@dataclass
class Tail:
    polls: list[list[tuple[int, list[bytes]]]]
    positions: dict[int, int]
    parts: dict[int, str] = field(default_factory=lambda: {0: "t-0", 1: "t-1"})
    is_closed: bool = False

    def poll(self) -> list[Records]:
        if not self.polls:
            time.sleep(0.001)
            return []
        found = []
        for partition, values in self.polls.pop(0):
            self.positions[partition] = self.positions.get(partition, 0) + len(values)
            found.append(Records(pa.array(values, pa.binary()), partition))
        return found

    def close(self) -> None:
        self.is_closed = True


@dataclass
class Topic:
    polls: list[list[tuple[int, list[bytes]]]]
    tails: list[Tail] = field(default_factory=list)

    def tail(self, positions: Mapping[int, int], task: int, tasks: int) -> Tail:
        self.tails.append(Tail(self.polls, dict(positions)))
        return self.tails[-1]

    def start(self) -> dict[int, int]:
        return {}


class Decoder:
    """Decodes numbers; what is no number is left."""

    def decode(self, values: pa.Array) -> Decoded:
        texts = [value.as_py() for value in values]
        good = [number for number, text in enumerate(texts) if text.isdigit()]
        left = np.array([number for number in range(len(texts)) if number not in good], np.int64)
        ids = [int(texts[number]) for number in good]
        rows = pa.table({"id": pa.array(ids, pa.int64()), "ts": pa.array([each * 10 for each in ids], pa.int64())})
        return Decoded(rows, np.array(good, np.int64), left)


def packing() -> PackTask:
    spec = PackSpec(
        source="t", operator="join_1", input=0, schema=COLUMNS, buckets=BUCKETS, delay=1, hashes=("$h",), sequence=None
    )
    return PackTask(spec, Exchange(None), None)


def follow(topic: Topic, folder: Path, run: int = 0, *, idle: float | None = None) -> FollowTask:
    projection = Projection(
        time="ts",
        scale=1,
        taken=(("id", "id", pa.int64()),),
        hashes=(("$h", (("id", pa.int64()),)),),
        reads=("id", "ts"),
        record=("id", "ts"),
        sequence=None,
        changes=None,
    )
    rows = RecordRows(Decoder(), projection, packing(), RAW, True)
    return FollowTask(topic, rows, Epochs(str(folder), run, 0, None), 0, 0, 1, 0, {0: 5}, idle)


@pytest.fixture(autouse=True)
def one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_task, "task_number", lambda: 0)


def ticks(topic: Topic, seconds: float = 0.0) -> Iterator[pa.RecordBatch]:
    """End once the topic has brought everything, after some seconds."""
    while topic.polls:
        time.sleep(0.001)
    time.sleep(0.02 + seconds)
    yield from ()


def sent(batches: Iterable[pa.RecordBatch]) -> Iterator[Frame | bytes]:
    """Frames and records left, in their order."""
    for batch in batches:
        if batch.column(PACKED).null_count:
            yield from batch.column("value").to_pylist()
        else:
            frames = pa.RecordBatch.from_arrays(batch.column(PACKED).flatten(), schema=FRAME_SCHEMA)
            yield from (frame for bundle in bundles_in(frames) for frame in unbundled(bundle))


def bundles_in(batch: pa.RecordBatch) -> Iterator[Frame]:
    """The bundles of a batch; a filler that goes the same way follows each."""
    frames = list(from_record_batch(batch))
    for number, frame in enumerate(frames):
        if frame.kind is not FrameKind.FILLER:
            assert (frames[number + 1].kind, frames[number + 1].bucket) == (FrameKind.FILLER, frame.bucket)
            yield frame


def test_rows_then_records_left_then_frontiers(tmp_path: Path) -> None:
    topic = Topic([[(0, [b"1", b"x", b"2"])], [(1, [b"3"])]])
    found = list(sent(follow(topic, tmp_path).run(ticks(topic))))
    first = [each for each in found[:2] if isinstance(each, Frame)]
    assert {frame.bucket for frame in first} == set(BUCKETS)  # every bucket hears of the epoch
    rest = found[2:]
    left = rest.index(b"x")
    before, after = rest[:left], rest[left + 1 :]
    ids = [
        value
        for frame in before
        if isinstance(frame, Frame) and frame.kind.has_rows
        for value in decode_table(frame.payload)["id"].to_pylist()
    ]
    assert sorted(ids) == [1, 2]
    assert not any(isinstance(each, Frame) and each.kind is FrameKind.MARK for each in before)
    marks = {
        (f.bucket, f.part, f.frontier) for f in after if isinstance(f, Frame) and f.kind is FrameKind.MARK and f.part
    }
    assert marks == {(bucket, part, frontier) for bucket in BUCKETS for part, frontier in (("t-0", 19), ("t-1", 29))}
    assert topic.tails[0].is_closed


def test_the_next_epoch_goes_on_where_this_one_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic([[(0, [b"1", b"2"])]])
    list(follow(topic, tmp_path).run(ticks(topic)))
    assert topic.tails[0].positions == {0: 7}  # it began at 5
    monkeypatch.setattr(epochs, "batch_id", lambda: 1)
    topic.polls.append([(1, [b"3"])])
    list(follow(topic, tmp_path).run(ticks(topic)))
    assert topic.tails[1].positions == {0: 7, 1: 1}
    # a run that begins anew does not see what was not committed
    monkeypatch.setattr(epochs, "batch_id", lambda: 0)
    list(follow(topic, tmp_path, run=1).run(ticks(topic)))
    assert topic.tails[2].positions == {0: 5}


def test_a_silent_partition_is_named_once_until_it_speaks(tmp_path: Path) -> None:
    topic = Topic([[(0, [b"1"])]])
    found = list(sent(follow(topic, tmp_path, idle=0.05).run(ticks(topic, 0.3))))
    events = [
        (frame.bucket, Event.from_json(bytes(frame.payload)))
        for frame in found
        if isinstance(frame, Frame) and frame.kind is FrameKind.CONTROL
    ]
    assert {event.kind for _, event in events} == {EventKind.IDLE}
    named = sorted((bucket, part) for bucket, event in events for part in event.parts or ())
    assert named == sorted((bucket, part) for bucket in BUCKETS for part in ("t-0", "t-1"))


def test_an_error_of_the_source_ends_the_task_and_its_connection(tmp_path: Path) -> None:
    topic = Topic([])

    def broken(self: Tail) -> list[Records]:
        raise ValueError("the broker is gone")

    Tail.poll, real = broken, Tail.poll  # type: ignore[method-assign]
    try:
        with pytest.raises(ValueError, match="the broker is gone"):
            list(follow(topic, tmp_path).run(ticks(topic, 1)))
    finally:
        Tail.poll = real  # type: ignore[method-assign]
    assert topic.tails[0].is_closed
    assert not list(tmp_path.rglob("*.state"))


def test_rows_that_spark_has_decoded_keep_their_place_between_frames(tmp_path: Path) -> None:
    topic = Topic([[(0, [b"1"])], [(0, [b"2"])]])
    frames = list(follow(topic, tmp_path).run(ticks(topic)))
    row = pa.table({"id": pa.array([9], pa.int64()), "$t": pa.array([90], pa.int64()), "$h": pa.array([1], pa.int64())})
    packed = frames[0].schema.field(PACKED)

    def with_row(batch: pa.RecordBatch | None) -> pa.RecordBatch:
        """A batch as it leaves Spark: frames beside decoded columns."""
        if batch is None:
            columns = [pa.nulls(1, packed.type), *(column.combine_chunks() for column in row.columns)]
        else:
            nothing = [pa.nulls(batch.num_rows, column.type) for column in row.schema]
            columns = [batch.column(PACKED), *nothing]
        return pa.RecordBatch.from_arrays(columns, names=[PACKED, *row.column_names])

    batches = [with_row(frames[0]), with_row(frames[1]), with_row(None), with_row(frames[2])]
    passed = [
        frame
        for batch in LiveRestTask(packing(), 0).run(iter(batches))
        for bundle in bundles_in(batch)
        for frame in unbundled(bundle)
    ]
    ids = [value for f in passed if f.kind.has_rows for value in decode_table(f.payload)["id"].to_pylist()]
    assert ids == [1, 9, 2]
    assert max(frame.frontier for frame in passed if frame.kind is FrameKind.MARK) == 89


def test_positions_are_text_that_people_can_read(tmp_path: Path) -> None:
    topic = Topic([[(0, [b"1"])]])
    list(follow(topic, tmp_path).run(ticks(topic)))
    (file,) = tmp_path.rglob("*.state")
    assert file.relative_to(tmp_path).parts[:-1] == ("inputs", "0", "0")
    assert json.loads(file.read_bytes().partition(b"}")[0] + b"}") == {"0": 6}
