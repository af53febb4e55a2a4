"""The state of changing streams follows the keys that hold, not the number of changes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from watersmeet.kernels.changelog import stored_rows
from watersmeet.testing.harness import Harness, StepInput, StepOutcome, load_script

KEYS = 2_000
DELAY = 5
ALONE = "SELECT id, v FROM l EMIT CHANGELOG"
BY_PRIMARY_KEY = "SELECT l.id, l.v, r.v AS w FROM l LEFT JOIN r ON l.id = r.id EMIT CHANGELOG"
BY_ANOTHER = "SELECT l.id, l.v, r.v AS w FROM l LEFT JOIN r ON l.k = r.k EMIT CHANGELOG"
GAUGES = ("state_rows", "segments", "state_bytes")
Gauges = dict[str, int]


def harness(query: str) -> Harness:
    watermark = f"WATERMARK FOR ts AS ts - INTERVAL '{DELAY}' SECONDS"
    streams = "".join(
        f"CREATE MUTABLE STREAM {name} (id INT, k INT, v INT, ts BIGINT, {watermark}) PRIMARY KEY (id)"
        " WITH (event_time_unit = 's');"
        for name in "lr"
    )
    return Harness(*load_script(f"{streams}{query};"), buckets=1)


def step(running: Harness, keys: Iterable[int], v: int, ts: int, *, delta: int = 1, streams: str = "lr") -> StepOutcome:
    """A change of each key, whose k moves with v."""
    changes = StepInput([(id, (id + v) % KEYS, v, ts, delta) for id in keys])
    return running.step({name: changes for name in streams if running.inputs_of(name)})


def gauges(outcome: StepOutcome) -> Gauges:
    return {name: outcome.count(name) for name in GAUGES}


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("query", "rounds"),
    [
        (BY_PRIMARY_KEY, 30),
        (BY_ANOTHER, 15),
        pytest.param(BY_PRIMARY_KEY, 100, marks=pytest.mark.slow),
        pytest.param(BY_ANOTHER, 100, marks=pytest.mark.slow),
    ],
)
def test_a_hundred_rounds_of_updates_leave_what_two_leave(
    query: str, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_rows, "MIN_DEAD", KEYS)
    running = harness(query)
    after = [
        # one side changes in every round, the other in some: counts of its rows change with the partners
        gauges(step(running, range(KEYS), number, number, streams="lr" if number % 10 < 2 else "l"))
        for number in range(rounds)
    ]
    for name in GAUGES:
        most = after[1][name] * (1.1 if name == "state_bytes" else 1)  # larger numbers take more bytes
        assert max(each[name] for each in after[2:]) <= most, name


@pytest.mark.parametrize("query", [ALONE, BY_PRIMARY_KEY, BY_ANOTHER])
def test_deleted_keys_leave_the_state_once_a_watermark_has_passed_them(
    query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_rows, "MIN_DEAD", 1)
    running = harness(query)
    last = [0]
    one_key = gauges(step(running, last, 0, 0))
    step(running, range(1, 101), 0, 1)
    deleted = step(running, range(1, 101), 0, 2, delta=-1)
    assert deleted.count("state_rows") > 100, "tombstones keep older rows out"
    # an older row is still on time, and restores nothing
    assert not step(running, range(1, 101), 9, 0).changes
    passed = gauges(step(running, last, 1, 2 + DELAY + 1))
    assert passed["state_rows"] == one_key["state_rows"]
    assert passed["state_bytes"] <= one_key["state_bytes"] * 1.1
    late = step(running, range(1, 101), 9, 2)
    assert not late.changes
    assert late.count("late") == 100 * len(running.plan.inputs)


@pytest.mark.sample(4)
@pytest.mark.parametrize("few", [100_000, 0])
@pytest.mark.parametrize("query", [ALONE, BY_PRIMARY_KEY])
def test_keys_that_come_once_and_go_once_leave_nothing_behind(
    query: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each leaves a row, its id in the log of removed rows, and a tombstone: the log never reaches half of the rows.

    Of many rows not every step looks for tombstones.
    """
    monkeypatch.setattr(stored_rows, "MIN_DEAD", 100)
    monkeypatch.setattr(stored_rows, "SCAN_ROWS_PER_STEP", few)
    running = harness(query)
    step(running, range(50), 0, 0)  # that stay
    held = []
    for number in range(1, 17):
        keys = range(100 * number, 100 * number + 50)
        step(running, keys, number, 10 * number)
        held.append(gauges(step(running, keys, number, 10 * number + 1, delta=-1)))
    assert max(each["state_rows"] for each in held[6:]) <= max(each["state_rows"] for each in held[:6])
    assert max(each["state_bytes"] for each in held[6:]) <= 1.1 * max(each["state_bytes"] for each in held[:6])


@pytest.mark.parametrize("query", [ALONE, BY_PRIMARY_KEY])
def test_tombstones_of_many_rows_go_in_some_steps_though_few_rows_come(
    query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_rows, "MIN_DEAD", 1)
    monkeypatch.setattr(stored_rows, "SCAN_ROWS_PER_STEP", 10)
    monkeypatch.setattr(stored_rows, "SCAN_ROWS_PER_NEW_ROW", 1)
    running = harness(query)
    one_key = gauges(step(running, [0], 0, 0))
    step(running, range(1, 101), 0, 1)
    step(running, range(1, 101), 0, 2, delta=-1)
    held = [gauges(step(running, [0], 1, 2 + DELAY + number))["state_rows"] for number in range(1, 12)]
    assert held[0] > 100
    assert held[-1] == one_key["state_rows"]
