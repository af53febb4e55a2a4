"""One bucket's step: retries, workers that change, limits, seals and checkpoints of others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.columns import TIME
from watersmeet.engine.bucket_step import run_step
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.engine.frames import Frame, FrameKind, counters_in, decode_table, mark_frame, row_frames
from watersmeet.engine.pack import RAW_TEXT
from watersmeet.engine.pack_report import PackReport
from watersmeet.engine.specs import InputSpec, OperatorSpec
from watersmeet.errors import CheckpointError, LimitError
from watersmeet.kernels.api import FOREVER, EmitMode, JoinKind
from watersmeet.kernels.interval import IntervalJoin
from watersmeet.kernels.match import Key, SideColumns, WindowMatch
from watersmeet.state.store import MemoryStore
from watersmeet.state.working_set import WorkingSet
from watersmeet.state.working_sets import WorkingSets

Step = list[Frame]
Sent = Counter[tuple[Any, ...]]
SCHEMA = {name: pa.schema([(TIME, pa.int64()), (f"{name}:k", pa.int32()), (f"{name}:v", pa.int32())]) for name in "lr"}
OUTPUT = pa.schema([("l:v", pa.int32()), ("r:v", pa.int32())])
BUCKET = 4


def spec(
    kind: JoinKind = JoinKind.FULL, emit: EmitMode = EmitMode.FINAL, parts: tuple[str, ...] = ("",)
) -> OperatorSpec:
    left, right = (
        SideColumns((f"{name}:v",) if kind.pairs or name == "l" else (), (f"{name}:k",), f"{name}:$t") for name in "lr"
    )
    output = OUTPUT if kind.pairs else pa.schema([OUTPUT.field("l:v")])
    changelog = emit is EmitMode.CHANGELOG
    return OperatorSpec(
        name="join_1",
        kernel=IntervalJoin(WindowMatch(kind, left, right, (Key("l:k", "r:k"),), -4, 4), emit),
        inputs=tuple(InputSpec(SCHEMA[name], name, parts) for name in "lr"),
        buckets=(BUCKET,),
        fingerprint="f",
        output=output.append(pa.field("$w", pa.int8())) if changelog else output,
    )


def rows(name: str, *values: tuple[int, int, int]) -> list[Frame]:
    """A frame for each row (time, key, value), so that their order can be changed."""
    number = "lr".index(name)
    tables = [pa.table([pa.array([v]) for v in row], SCHEMA[name].names).cast(SCHEMA[name]) for row in values]
    return [frame for table in tables for frame in row_frames(table, bucket=BUCKET, input=number)]


def mark(name: str, frontier: int, part: str = "") -> Frame:
    return mark_frame(BUCKET, "lr".index(name), part, frontier)


def control(event: Event) -> Frame:
    return Frame(BUCKET, 0, "", FrameKind.CONTROL, 0, event.to_json())


END = control(Event(EventKind.END))


def results(frames: Iterable[Frame]) -> Sent:
    """Rows that were sent, late ones too."""
    found: Sent = Counter()
    for frame in frames:
        if frame.kind in (FrameKind.ROWS, FrameKind.SIDE):
            found.update(tuple(row.values()) for row in decode_table(frame.payload).to_pylist())
    return found


def counters(frames: Iterable[Frame]) -> dict[str, int]:
    (reported,) = (counters_in(frame) for frame in frames if frame.kind is FrameKind.COUNTER)
    return {name.removeprefix("join_1."): value for name, value in reported.items()}


@pytest.fixture(scope="module")
def workers() -> list[WorkingSets]:
    return [WorkingSets(keyed_bytes=1 << 30), WorkingSets(keyed_bytes=1 << 30)]


def fresh(workers: list[WorkingSets]) -> list[WorkingSet]:
    for each in workers:
        each.forget()
    return [each.get("join_1", "4") for each in workers]


@st.composite
def steps(draw: st.DrawFn) -> list[Step]:
    row = st.tuples(st.sampled_from("lr"), st.integers(-6, 3), st.integers(0, 1))
    found: list[Step] = []
    for now in range(draw(st.integers(2, 5))):
        drawn = draw(st.lists(row, min_size=1, max_size=6))
        frames: Step = []
        for i, (name, jitter, key) in enumerate(drawn):
            frames += rows(name, (3 * now + jitter, key, 10 * now + i))
        frames += [mark(name, 3 * now - 2) for name in "lr"]
        found.append(frames)
    return [*found, [END]]


@settings(max_examples=max(settings.default.max_examples // 8, 1) if settings.default else 6)
@given(data=st.data(), steps=steps())
@pytest.mark.parametrize("kind", [JoinKind.FULL, JoinKind.ANTI, JoinKind.SEMI])
@pytest.mark.parametrize("emit", EmitMode)
def test_a_retry_in_another_order_on_another_worker_gives_the_same_rows(
    kind: JoinKind, emit: EmitMode, workers: list[WorkingSets], data: st.DataObject, steps: list[Step]
) -> None:
    """Each step may first be tried, with its rows in another order, and fail after its state was written."""
    operator = spec(kind, emit)
    undisturbed, retried = MemoryStore(), MemoryStore()
    (one, other) = fresh(workers)
    expected = [results(run_step(operator, BUCKET, step, undisturbed, one)) for step in steps]
    (one, other) = fresh(workers)
    for number, step in enumerate(steps):
        for _ in range(data.draw(st.integers(0, 2))):
            attempt = MemoryStore(retried)
            worker = data.draw(st.sampled_from([one, other]))
            assert (
                results(run_step(operator, BUCKET, data.draw(st.permutations(step)), attempt, worker))
                == expected[number]
            )
        worker = data.draw(st.sampled_from([one, other]))
        sent = list(run_step(operator, BUCKET, data.draw(st.permutations(step)), retried, worker))
        assert results(sent) == expected[number]


def test_a_step_that_fails_in_the_store_can_be_taken_again(workers: list[WorkingSets]) -> None:
    class Full(MemoryStore):
        def put(self, name: str, value: bytes) -> None:
            if name == "manifest":
                raise OSError("no space left")
            super().put(name, value)

    (worker, _) = fresh(workers)
    store = MemoryStore()
    list(run_step(spec(), BUCKET, [*rows("l", (5, 1, 1)), mark("l", 5), mark("r", 5)], store, worker))
    second = [*rows("r", (6, 1, 2), (7, 2, 3)), mark("l", 6), mark("r", 7)]
    with pytest.raises(OSError, match="no space left"):
        list(run_step(spec(), BUCKET, second, Full(store), worker))
    assert results(run_step(spec(), BUCKET, second, store, worker)) == {(1, 2): 1}
    assert results(run_step(spec(), BUCKET, [END], store, worker)) == {(None, 3): 1}


def test_what_the_store_holds_is_what_the_manifest_names(workers: list[WorkingSets]) -> None:
    (worker, _) = fresh(workers)
    store = MemoryStore()
    for now in range(40):
        frames = [
            *rows("l", (now, 1, now), (now, 2, now)),
            *rows("r", (now - 1, 1, now)),
            mark("l", now),
            mark("r", now - 1),
        ]
        list(run_step(spec(), BUCKET, frames, store, worker))
        live = json.loads(store["manifest"])["segments"]
        assert len(store) == 1 + sum(segment["chunks"] for segment in live)
    list(run_step(spec(), BUCKET, [END], store, worker))
    assert list(store) == ["manifest"]


def test_a_full_state_is_an_error_and_leaves_the_store_to_be_resumed(workers: list[WorkingSets]) -> None:
    (worker, other) = fresh(workers)
    store = MemoryStore()
    limited = replace(spec(), max_state_bytes=150)
    list(run_step(limited, BUCKET, [*rows("l", (5, 1, 1)), mark("l", 1), mark("r", 1)], store, worker))
    before = dict(store)
    many = rows("l", *((5, 1, i) for i in range(20)))
    attempt = MemoryStore(store)
    with pytest.raises(LimitError, match="has reached its limit") as caught:
        list(run_step(limited, BUCKET, many, attempt, worker))
    assert "join_max_buffered_bytes" in str(caught.value)
    assert dict(store) == before
    list(run_step(spec(), BUCKET, many, store, worker))  # resumed with a higher limit
    found = results(run_step(spec(), BUCKET, rows("r", (5, 1, 0)), store, other))
    assert found == Counter({(1, 0): 2, **{(i, 0): 1 for i in range(20) if i != 1}})


def test_a_limit_counts_for_all_buckets_together(workers: list[WorkingSets]) -> None:
    (worker, _) = fresh(workers)
    limited = replace(spec(), buckets=(0, BUCKET), max_state_bytes=300)
    with pytest.raises(LimitError, match="one of 2 buckets"):
        list(run_step(limited, BUCKET, rows("l", *((5, 1, i) for i in range(20))), MemoryStore(), worker))


@pytest.mark.parametrize(
    ("scale", "frontier", "told"),
    [
        (1, 20, "the frontier 20"),
        (1_000_000, 1_500_000, "the frontier 1.5"),
        (1_000, 1_700_000_000_000_000, "the frontier 1700000000000"),
        (None, 1_767_225_600_500_000, "the frontier 2026-01-01 00:00:00.500000+00:00"),
        (None, 2**60, "the frontier 1152921504606846976 microseconds from 1970"),
        (None, FOREVER, "the end of the stream, which has been declared"),
    ],
)
def test_the_reason_of_a_late_row_tells_time_as_its_column_does(
    workers: list[WorkingSets], scale: int | None, frontier: int, told: str
) -> None:
    assert reason_of_late_row(workers, frontier, scale=scale) == f"its event time is before {told}"


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"retention": 10}, "10, and so more than table_retention behind the frontier"),
        ({"late_by_own": True}, "the stream's own frontier 20"),
    ],
)
def test_the_reason_of_a_late_row_names_the_rule_of_its_stream(
    workers: list[WorkingSets], rule: dict[str, Any], told: str
) -> None:
    assert reason_of_late_row(workers, 20, scale=1, **rule) == f"its event time is before {told}"


def reason_of_late_row(workers: list[WorkingSets], frontier: int, **rules: Any) -> str:
    """Why a row of time 5 is late at a frontier, if the inputs have these rules."""
    (worker, _) = fresh(workers)
    store = MemoryStore()
    ruled = replace(spec(), inputs=tuple(replace(each, **rules) for each in spec().inputs))
    list(run_step(ruled, BUCKET, [mark("l", frontier), mark("r", frontier)], store, worker))
    late = pa.table([[5], [1], [2], ["text"]], names=[*SCHEMA["l"].names, RAW_TEXT])
    (side,) = (
        frame
        for frame in run_step(ruled, BUCKET, row_frames(late, bucket=BUCKET, input=0), store, worker)
        if frame.kind is FrameKind.SIDE
    )
    (row,) = decode_table(side.payload).to_pylist()
    return str(row["reason"])


def test_after_the_end_of_input_every_row_is_late(workers: list[WorkingSets]) -> None:
    (worker, _) = fresh(workers)
    store = MemoryStore()
    list(run_step(spec(), BUCKET, [*rows("l", (5, 1, 1)), END], store, worker))
    sent = list(run_step(spec(), BUCKET, [*rows("r", (2**62, 1, 2)), mark("r", 9)], store, worker))
    assert counters(sent)["late.r"] == 1
    assert counters(sent)["frontier"] == FOREVER
    assert not [frame for frame in sent if frame.kind is FrameKind.ROWS]


@pytest.mark.parametrize("change", [{"fingerprint": "g"}, {"version": 6}])
def test_state_of_another_plan_or_format_is_refused(workers: list[WorkingSets], change: dict[str, Any]) -> None:
    (worker, _) = fresh(workers)
    store = MemoryStore()
    list(run_step(spec(), BUCKET, rows("l", (5, 1, 1)), store, worker))
    store.put("manifest", json.dumps({**json.loads(store["manifest"]), **change}).encode())
    before = dict(store)
    with pytest.raises(CheckpointError):
        list(run_step(spec(), BUCKET, rows("l", (6, 1, 1)), store, worker))
    assert dict(store) == before


def test_time_waits_for_every_part(workers: list[WorkingSets]) -> None:
    (worker, _) = fresh(workers)
    store = MemoryStore()
    operator = spec(JoinKind.LEFT, parts=("t-0", "t-1"))
    list(run_step(operator, BUCKET, [*rows("l", (5, 1, 1)), mark("l", 50, "t-0"), mark("r", 50, "t-0")], store, worker))
    sent = list(run_step(operator, BUCKET, [mark("l", 40, "t-1"), *rows("r", (1, 1, 2))], store, worker))
    assert results(sent) == {(1, 2): 1}, "r is not late: its part t-1 has not been heard"
    sent = list(run_step(operator, BUCKET, [mark("r", 10, "t-1"), *rows("l", (6, 2, 3))], store, worker))
    assert results(sent) == {}
    idle = control(Event(EventKind.IDLE, ("r",), ("t-1",)))
    assert results(run_step(operator, BUCKET, [idle], store, worker)) == {(3, None): 1}


def test_a_retried_batch_counts_its_rows_once(workers: list[WorkingSets]) -> None:
    (worker, other) = fresh(workers)
    store = MemoryStore()
    counted = Frame(BUCKET, 0, "", FrameKind.MARK, -(2**63), PackReport(Counter({"in": 3, "filtered": 1})).to_json())
    step = [*rows("l", (5, 1, 1), (6, 1, 2)), counted, mark("l", 6)]
    list(run_step(spec(), BUCKET, step, MemoryStore(store), worker))
    found = counters(run_step(spec(), BUCKET, step[::-1], store, other))
    assert (found["in.l"], found["used.l"], found["filtered.l"], found["late.l"]) == (3, 2, 1, 0)
