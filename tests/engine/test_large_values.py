"""Large values stand beside the tables of a step: the kernel gets references, and results leave in small pieces."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest

from watersmeet.engine import frames, outbox
from watersmeet.errors import LimitError
from watersmeet.kernels import interval
from watersmeet.kernels.api import StepResult
from watersmeet.state import large_values
from watersmeet.state.large_values import LargeValues
from watersmeet.testing.harness import Harness, StepInput, StepOutcome, load_script

SCRIPT = """
CREATE STREAM l (k INT, a STRING, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM r (k INT, b STRING, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
"""
LARGE, VALUE = 600, 3_000
PAIRS = "SELECT l.k, l.a, r.b FROM l {kind} JOIN r ON l.k = r.k WITHIN INTERVAL '5' SECONDS"
LEFT_ROWS = "SELECT l.k, l.a FROM l {kind} JOIN r ON l.k = r.k WITHIN INTERVAL '5' SECONDS"
QUERIES = {
    "inner": PAIRS.format(kind="INNER"),
    "left, final": f"{PAIRS.format(kind='LEFT')} EMIT FINAL",
    "left, at once": f"{PAIRS.format(kind='LEFT')} EMIT CHANGELOG",
    "full": f"{PAIRS.format(kind='FULL')} EMIT FINAL",
    "semi": LEFT_ROWS.format(kind="LEFT SEMI"),
    "anti": f"{LEFT_ROWS.format(kind='LEFT ANTI')} EMIT FINAL",
    "a condition on the value": "SELECT l.k, l.a, r.b FROM l LEFT JOIN r ON l.k = r.k AND l.a < r.b "
    "WITHIN INTERVAL '5' SECONDS EMIT FINAL",
    "a chain": "SELECT l.a, r.b, m.a AS c FROM l JOIN r ON l.k = r.k WITHIN INTERVAL '5' SECONDS "
    "LEFT JOIN l AS m ON m.k = r.k AND m.ts BETWEEN r.ts AND r.ts + 3 EMIT FINAL",
}


@pytest.fixture(autouse=True)
def _small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_values, "LARGE_BYTES", LARGE)
    monkeypatch.setattr(large_values, "PIECE_BYTES", 3 * VALUE)
    monkeypatch.setattr(frames, "MAX_PAYLOAD_BYTES", VALUE)


def value(side: str, number: int) -> str | None:
    """A value of its own; some are short, or none."""
    return None if number % 7 == 3 else f"{side}{number}" * (1 if number % 3 == 1 else VALUE // 3)


def batches() -> list[dict[str, StepInput]]:
    """Four batches, of which rows match those of the batch before, then one that ends all windows."""
    found = []
    for batch in range(4):
        times = [(number % 3, number, 3 * batch + number % 3) for number in range(8 * batch, 8 * batch + 8)]
        rows = {side: [(k, value(side, n), ts) for k, n, ts in times] for side in "lr"}
        alone = [(50 + batch, value("alone", batch), 3 * batch)]
        found.append({side: StepInput([*of_side, *alone[: side == "l"]]) for side, of_side in rows.items()})
    return [*found, {side: StepInput([(99, "", 1_000)]) for side in "lr"}]


def outcomes(query: str) -> list[StepOutcome]:
    """What the batches give, with a restart between them that loads the state from the store."""
    harness = Harness(*load_script(SCRIPT + query), buckets=2, max_step_bytes=4 * VALUE)
    found = []
    for number, batch in enumerate(batches()):
        if number == 2:
            harness.restart()
        found.append(harness.step(batch))
    return found


@pytest.mark.sample(4)
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_results_are_the_same_wherever_values_stand(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcomes(query)
    monkeypatch.setattr(large_values, "LARGE_BYTES", 1 << 40)
    expected = outcomes(query)
    assert [sorted(each.changes, key=repr) for each in found] == [sorted(each.changes, key=repr) for each in expected]
    assert any(each.changes for each in expected)
    sizes = ("state_rows", "state_bytes", "segments", "matched", "results")
    assert [[each.count(name) for name in sizes] for each in found] == [
        [each.count(name) for name in sizes] for each in expected
    ]


@pytest.mark.parametrize("name", ["inner", "left, final", "left, at once", "full", "semi", "anti"])
def test_what_a_step_has_at_once_is_small(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty rows a side under one key have 400 pairs, of 2.4 MB; the kernel gets none of these bytes."""
    at_kernel: list[int] = []
    sent: list[tuple[int, int]] = []
    step, frames_of = interval.IntervalJoin.step, outbox.result_frames

    def measured(
        self: interval.IntervalJoin, state: object, inputs: Mapping[int, pa.Table], *more: object
    ) -> StepResult:
        at_kernel.extend(table.nbytes for table in inputs.values())
        result: StepResult = step(self, state, inputs, *more)  # type: ignore[arg-type]
        at_kernel.extend(table.nbytes for table in result.store.values())
        return result

    def recorded(spec: object, bucket: int, query: int, changes: pa.Table) -> object:
        sent.append((changes.num_rows, changes.nbytes))
        return frames_of(spec, bucket, query, changes)  # type: ignore[arg-type]

    monkeypatch.setattr(interval.IntervalJoin, "step", measured)
    monkeypatch.setattr(outbox, "result_frames", recorded)
    harness = Harness(*load_script(SCRIPT + QUERIES[name]), buckets=1)
    rows = [(1, "x" * VALUE, 7) for _ in range(20)]
    given = 0
    ends = {side: StepInput([(99, "", 99)]) for side in "lr"}
    for batch in ({"l": StepInput([*rows, (2, "y" * VALUE, 7)])}, {"r": StepInput(rows)}, ends):
        given += len(harness.step(batch).changes)
    assert given >= {"semi": 20, "anti": 1}.get(name, 400)
    assert sum(rows for rows, _ in sent) == given
    assert max(nbytes for _, nbytes in sent) < 4 * VALUE
    assert max(at_kernel) < 20 * 120  # a reference has 45 bytes


def test_values_are_dropped_with_their_owner() -> None:
    values = LargeValues()
    rows = pa.table({"a": ["x" * LARGE, None, "", "x" * (LARGE - 1)], "n": [1, 2, 3, 4]})
    kept = values.keep("segment", rows, ("a", "missing"), in_file=True)
    assert kept.nbytes < 2 * LARGE
    assert values.keep("step", rows, ()).equals(rows)
    assert values.whole(kept).equals(rows)
    assert values.whole(kept.take([3, 0, 0, 1])).equals(rows.take([3, 0, 0, 1]))
    values.forget("segment")
    values.forget("step")
    assert (values._values, values._owners) == ({}, {})


def test_columns_of_more_bytes_than_an_array_may_have_are_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_values, "CHUNK_BYTES", 2 * LARGE)
    values, rows = LargeValues(), pa.table({"a": ["x" * LARGE, "y", None, "z" * LARGE, "v" * LARGE]})
    found = values.whole(values.keep("step", rows, ("a",)))
    assert found.equals(rows)
    assert max(chunk.nbytes for chunk in found["a"].chunks) < 3 * LARGE
    assert found["a"].num_chunks > 1


def test_bytes_of_a_value_are_copied_out_of_its_rows_into_the_file() -> None:
    """Otherwise a segment would keep the batch that brought it in memory."""
    values, before = LargeValues(), pa.total_allocated_bytes()
    rows = pa.table({"a": pa.chunked_array([[bytes(LARGE)] * 3, [bytes(LARGE), b""]])})
    kept = values.keep("segment", rows, ("a",), in_file=True)
    expected = rows.to_pylist()
    del rows
    assert pa.total_allocated_bytes() - before < LARGE
    assert values.whole(kept).to_pylist() == expected


def test_a_row_that_is_too_large_is_named_with_what_to_do() -> None:
    harness = Harness(*load_script(SCRIPT + QUERIES["inner"]), buckets=1, max_step_bytes=12_000_000)
    harness.step({"l": StepInput([(1, "x" * 17_900_000, 7)])})
    with pytest.raises(LimitError, match=r"a row of 18,[0-9,]+ bytes came to join_1, .* at most 18,000,000") as raised:
        harness.step({"l": StepInput([(1, "x" * 18_100_000, 7)])})
    assert "raise worker_memory" in str(raised.value.hint)
