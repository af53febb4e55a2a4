"""The task that follows a source: what it sends, in which order, and where the next epoch goes on."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.columns import PACKED, PART, SEQUENCE
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.engine.frames import Frame, FrameKind, decode_table, from_record_batch, unbundled
from watersmeet.engine.projection import Projection
from watersmeet.engine.specs import PackSpec
from watersmeet.errors import WatersmeetError
from watersmeet.records.decoder import Decoded
from watersmeet.runtime.exchange import Exchange
from watersmeet.runtime.real_time import epochs, source_task
from watersmeet.runtime.real_time.epochs import Epochs
from watersmeet.runtime.real_time.records_for_spark import RecordsForSparkTask
from watersmeet.runtime.real_time.source_task import FollowTask
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


def run(task: FollowTask, ticks: Iterable[pa.RecordBatch]) -> list[Frame]:
    """The frames that an epoch sends."""
    decoded = by_spark(RecordsForSparkTask(task.rows).run(ticks))
    return [frame for batch in task.run(decoded) for bundle in bundles_in(batch) for frame in unbundled(bundle)]


def by_spark(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What Spark does between the two functions: a row for each record, ``x7`` has the number 7; frames stay.

    It keeps the last row back until there is another one, and hands rows over one by one.
    """
    kept = None
    for batch in batches:
        for row in range(batch.num_rows):
            if kept is not None:
                yield kept
            value, frame = batch.column("value")[row].as_py(), batch.column(PACKED).slice(row, 1)
            number = None if value is None else int(value[1:] or b"0")
            time = None if number is None else number * 10
            columns = [frame, *(pa.array([each], pa.int64()) for each in (number, time, 1))]
            kept = pa.RecordBatch.from_arrays([*columns, pa.array(["t-0"])], names=[PACKED, "id", "$t", "$h", "$part"])
    if kept is not None:
        yield kept


def bundles_in(batch: pa.RecordBatch) -> Iterator[Frame]:
    """The bundles of a batch; a filler that goes the same way follows each."""
    frames = list(from_record_batch(batch))
    for number, frame in enumerate(frames):
        if frame.kind is not FrameKind.FILLER:
            assert (frames[number + 1].kind, frames[number + 1].bucket) == (FrameKind.FILLER, frame.bucket)
            yield frame


def ids(frames: Iterable[Frame]) -> list[int]:
    return [value for f in frames if f.kind.has_rows for value in decode_table(f.payload)["id"].to_pylist()]


def test_rows_that_spark_decodes_come_before_frontiers(tmp_path: Path) -> None:
    topic = Topic([[(0, [b"1", b"x4", b"2", b"x5"])], [(1, [b"3"])], [(0, [b"x"])]])
    found = run(follow(topic, tmp_path), ticks(topic))
    assert {frame.bucket for frame in found[:2]} == set(BUCKETS)  # every bucket hears of the epoch
    before = []
    for bucket in BUCKETS:
        own = [frame for frame in found if frame.bucket == bucket]
        before += own[: next(number for number, f in enumerate(own) if f.kind is FrameKind.MARK and f.frontier > 0)]
    assert sorted(ids(before)) == [1, 2, 4, 5]
    assert sorted(ids(found)) == [0, 1, 2, 3, 4, 5]
    marks = {(f.bucket, f.part, f.frontier) for f in found if f.kind is FrameKind.MARK and f.part}
    expected = (("t-0", 49), ("t-1", 29), ("t-0", -1))
    assert marks == {(bucket, part, frontier) for bucket in BUCKETS for part, frontier in expected}
    assert topic.tails[0].is_closed


def test_many_records_are_left_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_task, "_LEFT_AT_ONCE", 3)
    topic = Topic([[(0, [b"x%d" % number for number in range(10)])]])
    found = run(follow(topic, tmp_path), ticks(topic))
    assert sorted(ids(found)) == list(range(10))
    assert {f.frontier for f in found if f.kind is FrameKind.MARK and f.part} == {89}


def test_records_that_come_as_the_epoch_ends_are_decoded_in_it(tmp_path: Path) -> None:
    topic = Topic([[(0, [b"x7"])]])
    task, is_with_spark = follow(topic, tmp_path), threading.Event()

    def ended() -> Iterator[pa.RecordBatch]:
        assert is_with_spark.wait(10)
        yield from ()

    def slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in by_spark(batches):
            if batch.column("id").null_count == 0:
                is_with_spark.set()
                time.sleep(0.05)  # the epoch ends meanwhile
            yield batch

    sent = list(task.run(slowly(RecordsForSparkTask(task.rows).run(ended()))))
    assert ids(frame for batch in sent for bundle in bundles_in(batch) for frame in unbundled(bundle)) == [7]
    assert topic.tails[0].positions == {0: 6}


def test_an_error_of_spark_reaches_the_task(tmp_path: Path) -> None:
    topic = Topic([[(0, [b"x1"])]])

    def broken(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in by_spark(batches):
            if batch.column("id").null_count == 0:
                raise ValueError("Spark cannot decode this")
            yield batch

    task = follow(topic, tmp_path)
    with pytest.raises(ValueError, match="Spark cannot decode this"):
        list(task.run(broken(RecordsForSparkTask(task.rows).run(ticks(topic)))))
    assert topic.tails[0].is_closed


def test_the_socket_is_its_owners_alone_and_gone_once_both_functions_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "t"))
    (tmp_path / "t").mkdir()
    topic = Topic([[(0, [b"1"])]])
    task = follow(topic, tmp_path / "epochs")
    modes: list[int] = []

    def looking(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            modes.extend(folder.stat().st_mode & 0o777 for folder in (tmp_path / "t").iterdir())
            yield batch

    output = task.run(by_spark(looking(RecordsForSparkTask(task.rows).run(ticks(topic)))))
    next(output)
    assert modes == [0o700]
    next(output)
    deadline = time.monotonic() + 10
    while list((tmp_path / "t").iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    list(output)


def test_the_next_epoch_goes_on_where_this_one_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic([[(0, [b"1", b"2"])]])
    run(follow(topic, tmp_path), ticks(topic))
    assert topic.tails[0].positions == {0: 7}  # it began at 5
    monkeypatch.setattr(epochs, "batch_id", lambda: 1)
    topic.polls.append([(1, [b"3"])])
    run(follow(topic, tmp_path), ticks(topic))
    assert topic.tails[1].positions == {0: 7, 1: 1}
    # a run that begins anew does not see what was not committed
    monkeypatch.setattr(epochs, "batch_id", lambda: 0)
    run(follow(topic, tmp_path, run=1), ticks(topic))
    assert topic.tails[2].positions == {0: 5}


def test_a_silent_partition_is_named_once_until_it_speaks(tmp_path: Path) -> None:
    topic = Topic([[(0, [b"1"])]])
    found = run(follow(topic, tmp_path, idle=0.05), ticks(topic, 0.3))
    events = [
        (frame.bucket, Event.from_json(bytes(frame.payload))) for frame in found if frame.kind is FrameKind.CONTROL
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
            run(follow(topic, tmp_path), ticks(topic, 1))
    finally:
        Tail.poll = real  # type: ignore[method-assign]
    assert topic.tails[0].is_closed
    assert not list(tmp_path.rglob("*.state"))


def test_positions_are_text_that_people_can_read(tmp_path: Path) -> None:
    topic = Topic([[(0, [b"1"])]])
    run(follow(topic, tmp_path), ticks(topic))
    (file,) = tmp_path.rglob("*.state")
    assert file.relative_to(tmp_path).parts[:-1] == ("inputs", "0", "0")
    assert json.loads(file.read_bytes().partition(b"}")[0] + b"}") == {"0": 6}


def test_a_function_that_is_gone_is_not_the_end_of_the_epoch(tmp_path: Path) -> None:
    """It is killed while nothing is left to Spark: no positions are written for an epoch that did not end."""
    topic = Topic([[(0, [b"1"])]])

    def killed() -> Iterator[pa.RecordBatch]:
        yield from ticks(topic)
        raise ValueError("the worker was killed")

    def without_error(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with suppress(ValueError):
            yield from by_spark(batches)

    task = follow(topic, tmp_path)
    with pytest.raises(WatersmeetError, match="the function that gives records to Spark has ended before the epoch"):
        list(task.run(without_error(RecordsForSparkTask(task.rows).run(killed()))))
    assert not list(tmp_path.rglob("*.state"))
