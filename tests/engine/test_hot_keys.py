"""Hot keys: detection, phases, routing; results equal those without spreading."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.engine import hot_key_decision
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.engine.hot_key_decision import COLD_BATCHES, RowCounts, next_keys
from watersmeet.engine.hot_keys import (
    Entry,
    HotKey,
    KeySample,
    Phase,
    SpreadRule,
    assign_spread_rows,
    rows_to_copy,
)
from watersmeet.engine.pack import pack
from watersmeet.errors import CheckpointError
from watersmeet.kernels.api import FOREVER, NEVER
from watersmeet.runtime import hot_key_files
from watersmeet.runtime.hot_key_files import HotKeyFiles
from watersmeet.testing.harness import Harness, StepInput, load_script

RULE = SpreadRule((0,), 100, reach=1000)
#: In tests of whole queries, a key goes home after this many cold batches.
COLD = 3
MANY = {0: RowCounts(1000, {7: 500})}
FEW = {0: RowCounts(1000, {7: 20})}


def after(keys: dict[int, HotKey], seen: dict[int, RowCounts], newest: int = 50, closed: int = 0) -> dict[int, HotKey]:
    return next_keys(keys, seen, (newest, newest), (closed, closed), RULE, 2)


def test_a_key_is_copied_then_spread_then_gathered() -> None:
    keys = after({}, MANY, newest=50)
    assert keys == {7: HotKey(0, Phase.COPIED, until=50)}
    assert after(keys, MANY, newest=80, closed=50) == keys  # a row at 50 is not past yet
    keys = after(keys, MANY, newest=80, closed=51)
    assert keys == {7: HotKey(0, Phase.SPREAD)}
    for batches in range(1, COLD_BATCHES):
        keys = after(keys, FEW, newest=90)
        assert keys == {7: HotKey(0, Phase.SPREAD, cold=batches)}
    keys = after(keys, FEW, newest=90)
    assert keys == {7: HotKey(0, Phase.GATHERED, until=90, cold=COLD_BATCHES)}
    assert after(keys, MANY, newest=99) == {7: HotKey(0, Phase.SPREAD)}
    assert after(keys, FEW, newest=99, closed=90)[7].phase is Phase.GATHERED
    assert after(keys, FEW, newest=99, closed=91) == {}


def test_a_key_that_cools_before_it_was_spread_goes_home_at_once() -> None:
    keys = {7: HotKey(0, Phase.COPIED, until=50, cold=COLD_BATCHES - 1)}
    assert after(keys, FEW) == {}


@pytest.mark.parametrize(
    ("rows", "of_key", "buckets", "hot"),
    [(1000, 100, 2, True), (1000, 99, 2, False), (10_000, 300, 2, False), (10_000, 300, 8, True)],
)
def test_a_key_is_hot_by_its_rows_and_by_its_share(rows: int, of_key: int, buckets: int, hot: bool) -> None:
    assert bool(next_keys({}, {0: RowCounts(rows, {7: of_key})}, (5, 5), (0, 0), RULE, buckets)) is hot


def test_of_two_sides_that_may_be_spread_it_is_the_larger() -> None:
    seen = {0: RowCounts(1000, {7: 200}), 1: RowCounts(1000, {7: 300})}
    keys = next_keys({}, seen, (40, 60), (0, 0), SpreadRule((0, 1), 100, reach=1000), 2)
    assert keys == {7: HotKey(1, Phase.COPIED, until=40)}


def test_no_key_is_begun_where_the_newest_rows_are_not_known() -> None:
    assert next_keys({}, MANY, (5, FOREVER), (0, 0), RULE, 2) == {}


def test_a_sample_finds_the_frequent_keys() -> None:
    rng = np.random.default_rng(3)
    sampled = KeySample()
    for _ in range(3):
        sampled.add(np.where(rng.random(50_000) < 0.1, 7, rng.integers(100, 10_000, 50_000)))
    ((key, rows),) = sampled.frequent(2).items()
    assert key == 7
    assert 13_000 < rows < 17_000
    sampled.add(np.full(3000, 9))
    assert set(sampled.frequent(2)) == {7}, "a small portion counts as much as it has"
    in_turn = KeySample()
    in_turn.add(np.arange(1_000_000) % 2)
    assert in_turn.frequent(2).keys() == {0, 1}
    assert KeySample().frequent(2) == {}


def test_spread_rows_go_by_their_time_and_copies_are_those_of_the_other_side() -> None:
    hashes = np.array([7, 8, 7, 7], dtype=np.int64)
    times = np.arange(4, dtype=np.int64)
    keys = {7: HotKey(0, Phase.SPREAD)}
    indexes = np.zeros(4, dtype=np.uint16)
    assign_spread_rows(indexes, hashes, times, keys, 0, 5)
    alone = np.zeros(2, dtype=np.uint16)
    assign_spread_rows(alone, hashes[2:], times[2:], keys, 0, 5)
    assert indexes[1] == 0
    assert indexes[2:].tolist() == alone.tolist()
    assert len(set(indexes.tolist())) > 1
    chosen = rows_to_copy(hashes, keys, 1)
    assert chosen is not None
    assert chosen.tolist() == [True, False, True, True]
    assert rows_to_copy(hashes, keys, 0) is None
    home = {7: replace(keys[7], phase=Phase.COPIED)}
    unmoved = np.zeros(4, dtype=np.uint16)
    assign_spread_rows(unmoved, hashes, times, home, 0, 5)
    assert not unmoved.any()


# -- whole queries -----------------------------------------------------------------------------------------------------

SCRIPT = """
CREATE STREAM l (k INT, n INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '3' SECONDS) WITH (event_time_unit = 's');
CREATE STREAM r (k INT, n INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '3' SECONDS) WITH (event_time_unit = 's');
SELECT {0} FROM l {1} r ON l.k = r.k WITHIN INTERVAL '4' SECONDS EMIT {2} SETTINGS skew = '{3}', skew_rows = 3;
"""
#: A third stream has the rows of both others, so that its copies and those of the others meet everywhere.
THREE = """
CREATE STREAM l (k INT, n INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '3' SECONDS) WITH (event_time_unit = 's');
CREATE STREAM r (k INT, n INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '3' SECONDS) WITH (event_time_unit = 's');
SELECT l.n, r.n AS m, o.n AS o FROM l {0} r ON l.k = r.k {1} r o ON l.k = o.k AND r.n <= o.n
WITHIN INTERVAL '4' SECONDS EMIT FINAL SETTINGS skew = '{2}', skew_rows = 3, multi_join = 'on';
"""
BEFORE_AND_AFTER = "(INTERVAL '10' SECONDS, INTERVAL '1' SECOND)"
CHAINS = (("JOIN", "JOIN"), ("LEFT JOIN", "LEFT JOIN"), ("LEFT JOIN", "JOIN"))
JOINS = (
    "JOIN",
    "LEFT JOIN",
    "RIGHT JOIN",
    "FULL JOIN",
    "LEFT SEMI JOIN",
    "LEFT ANTI JOIN",
    "RIGHT SEMI JOIN",
    "RIGHT ANTI JOIN",
)


def script(join: str, emit: str, skew: str = "spread") -> str:
    both = "SEMI" not in join and "ANTI" not in join
    one = "r.n" if join.startswith("RIGHT") else "l.n"
    return SCRIPT.format("l.n, r.n AS m" if both else one, join, emit, skew)


@st.composite
def batches(draw: st.DrawFn) -> list[dict[str, StepInput]]:
    """Rows mostly of one key for a while, later of others, so that it is hot at first and cold later."""
    found = []
    number = 0
    hot_for = draw(st.integers(3, 8))
    for now in range(hot_for + draw(st.sampled_from((1, COLD + 4)))):
        drawn = draw(st.lists(st.tuples(st.sampled_from("lr"), st.integers(-4, 3), st.integers(0, 9)), max_size=14))
        rows: dict[str, list[tuple[Any, ...]]] = {"l": [], "r": []}
        for side, jitter, key in drawn:
            number += 1
            rows[side].append((0 if key < 8 and now < hot_for else key, number, 4 * now + jitter))
        found.append({side: StepInput(of_side) for side, of_side in rows.items()})
    return found


def results(text: str, steps: list[dict[str, StepInput]], buckets: int, restart: bool) -> tuple[Any, dict[str, int]]:
    """Changes of each batch, and the counters at the end."""
    harness = Harness(*load_script(text), buckets=buckets)
    found = []
    spread = 0
    for step in steps:
        outcome = harness.step(step)
        found.append(Counter((row, weight) for weight, row in outcome.changes))
        spread = max(spread, outcome.counters.get("join_1.hot_keys", 0))
        if restart:
            harness.restart()
    outcome = harness.step({}, [Event(EventKind.END)])
    found.append(Counter((row, weight) for weight, row in outcome.changes))
    accounts = ("in", "used", "filtered", "late", "quarantined")
    counters = {name: count for name, count in outcome.counters.items() if name.split(".")[1] in accounts}
    return (found, counters), outcome.counters | {"ever hot": spread}


@settings(max_examples=settings.default.max_examples // 5 if settings.default else 6)
@given(
    steps=batches(),
    join=st.sampled_from(JOINS),
    emit=st.sampled_from(("FINAL", "CHANGELOG")),
    buckets=st.sampled_from((2, 3)),
    restart=st.booleans(),
)
def test_spreading_changes_no_result(
    steps: list[dict[str, StepInput]], join: str, emit: str, buckets: int, restart: bool
) -> None:
    at_home, _ = results(script(join, emit, "keep"), steps, 1, restart=False)
    with pytest.MonkeyPatch.context() as sooner:
        sooner.setattr(hot_key_decision, "COLD_BATCHES", COLD)
        spread, _ = results(script(join, emit), steps, buckets, restart)
    assert spread == at_home


#: Each with the time that orders it; the window is not symmetric, so the sides wait for different times.
SLIDING = (("JOIN", "l"), ("JOIN", "r"), ("LEFT JOIN", "l"), ("RIGHT JOIN", "r"))


def sliding(join: str, probe: str, skew: str) -> str:
    text = script(join, "FINAL", skew).replace(
        "INTERVAL '4' SECONDS EMIT", f"{BEFORE_AND_AFTER} ORDER BY {probe}.ts EMIT"
    )
    assert "ORDER BY" in text
    return text


@settings(max_examples=settings.default.max_examples // 5 if settings.default else 6)
@given(steps=batches(), join=st.sampled_from(SLIDING), buckets=st.sampled_from((2, 3)), restart=st.booleans())
def test_spreading_changes_no_result_of_a_sliding_join(
    steps: list[dict[str, StepInput]], join: tuple[str, str], buckets: int, restart: bool
) -> None:
    at_home, _ = results(sliding(*join, "keep"), steps, 1, restart=False)
    with pytest.MonkeyPatch.context() as sooner:
        sooner.setattr(hot_key_decision, "COLD_BATCHES", COLD)
        spread, _ = results(sliding(*join, "spread"), steps, buckets, restart)
    assert spread == at_home


@pytest.mark.sample(3)
@pytest.mark.parametrize("join", SLIDING)
def test_a_hot_key_of_a_sliding_join_is_spread_and_goes_home_again(
    join: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hot_key_decision, "COLD_BATCHES", COLD)
    # rows of a spread key may need rows of the other stream from before it was copied
    steps = skewed(20, hot=7, behind={"l": 3})
    at_home, _ = results(sliding(*join, "keep"), steps, 1, restart=False)
    spread, counters = results(sliding(*join, "spread"), steps, 3, restart=False)
    assert spread == at_home
    assert counters["ever hot"] == 1
    assert counters.get("join_1.hot_keys", 0) == 0


@settings(max_examples=settings.default.max_examples // 5 if settings.default else 6)
@given(steps=batches(), joins=st.sampled_from(CHAINS), buckets=st.sampled_from((2, 3)), restart=st.booleans())
def test_spreading_changes_no_result_of_three_streams(
    steps: list[dict[str, StepInput]], joins: tuple[str, str], buckets: int, restart: bool
) -> None:
    at_home, _ = results(THREE.format(*joins, "keep"), steps, 1, restart=False)
    with pytest.MonkeyPatch.context() as sooner:
        sooner.setattr(hot_key_decision, "COLD_BATCHES", COLD)
        spread, _ = results(THREE.format(*joins, "spread"), steps, buckets, restart)
    assert spread == at_home


@pytest.mark.sample(3)
@pytest.mark.parametrize("joins", CHAINS)
def test_a_hot_key_of_three_streams_is_spread_and_goes_home_again(
    joins: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hot_key_decision, "COLD_BATCHES", COLD)
    _, counters = results(THREE.format(*joins, "spread"), skewed(16, hot=9), 3, restart=False)
    assert counters["ever hot"] == 1
    assert counters.get("join_1.hot_keys", 0) == 0


def test_of_three_inputs_the_rows_of_the_others_must_have_gone_before_one_is_spread() -> None:
    rule = SpreadRule((0, 1, 2), 100, reach=1000)
    begun = next_keys({}, MANY, (10, 40, 60), (0, 0, 0), rule, 2)
    assert begun == {7: HotKey(0, Phase.COPIED, until=60)}
    assert next_keys(begun, MANY, (90, 90, 90), (70, 61, 60), rule, 2)[7].phase is Phase.COPIED
    assert next_keys(begun, MANY, (90, 90, 90), (0, 61, 61), rule, 2)[7].phase is Phase.SPREAD
    assert next_keys({}, MANY, (10, 40, FOREVER), (0, 0, 0), rule, 2) == {}


def skewed(batches: int, hot: int, behind: Mapping[str, int] | None = None) -> list[dict[str, StepInput]]:
    """Batches of ten rows a side over ten seconds; of the first ``hot`` all have key 0."""

    def rows(side: str, number: int) -> StepInput:
        begin = 10 * number - (behind or {}).get(side, 0)
        return StepInput([(0 if number < hot else i, 100 * number + i, begin + i) for i in range(10)])

    return [{side: rows(side, number) for side in "lr"} for number in range(batches)]


@pytest.mark.sample(4)
@pytest.mark.parametrize("join", JOINS)
def test_a_hot_key_is_spread_and_goes_home_again(join: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_key_decision, "COLD_BATCHES", COLD)
    steps = skewed(16, hot=7)
    _, counters = results(script(join, "FINAL"), steps, 3, restart=False)
    assert counters["ever hot"] == (0 if join == "FULL JOIN" else 1)
    assert counters.get("join_1.hot_keys", 0) == 0


TIES = """
CREATE STREAM l (k INT, n INT, sn INT) WITH (ordered_by = 'sn, n DESC');
CREATE STREAM r (k INT, n INT, sn INT) WITH (ordered_by = 'sn, n DESC');
SELECT l.n, r.n AS m, l.sn FROM l JOIN r ON l.k = r.k AND r.sn BETWEEN l.sn - 4 AND l.sn + 4
SETTINGS skew = '{0}', skew_rows = 3;
"""


def test_a_copy_is_late_by_further_terms_of_the_order_as_its_row_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_key_decision, "COLD_BATCHES", COLD)
    chance = random.Random(3)

    def rows(number: int) -> StepInput:
        return StepInput([(0, chance.randrange(9), number // 3) for _ in range(8)])

    steps = [{side: rows(number) for side in "lr"} for number in range(24)]
    at_home, _ = results(TIES.format("keep"), steps, 1, restart=False)
    spread, counters = results(TIES.format("spread"), steps, 3, restart=True)
    assert spread == at_home
    assert counters["ever hot"] == 1
    assert counters["join_1.late.l"] > 20


def test_spread_rows_lie_in_several_buckets() -> None:
    harness = Harness(*load_script(script("LEFT JOIN", "FINAL")), buckets=3)
    held = set()
    for step in skewed(10, hot=10):
        harness.step(step)
        held |= {bucket for (_, bucket), store in harness._stores.items() if b'"relation":"left"' in store["manifest"]}
    assert held == {0, 1, 2}


def test_a_checkpoint_with_spread_keys_is_refused_where_they_are_not_known() -> None:
    harness = Harness(*load_script(script("JOIN", "FINAL")), buckets=2)
    steps = skewed(5, hot=5)
    for step in steps[:4]:
        harness.step(step)
    harness._hot_keys.clear()
    with pytest.raises(CheckpointError, match="the hot keys of join_1 are not those that it has noted"):
        harness.step(steps[4])


def test_no_key_is_begun_while_rows_lie_far_ahead() -> None:
    assert after({}, MANY, newest=4000, closed=0) != {}
    assert after({}, MANY, newest=4001, closed=0) == {}
    assert after({}, MANY, newest=50, closed=NEVER) == {}


def test_a_key_is_not_begun_where_many_more_rows_would_be_copied() -> None:
    assert after({}, {**MANY, 1: RowCounts(9000, {7: 1000})}) != {}
    assert after({}, {**MANY, 1: RowCounts(9000, {7: 1001})}) == {}


def test_a_key_that_is_hot_on_the_other_side_alone_cools() -> None:
    keys = {7: HotKey(1, Phase.SPREAD)}
    assert after(keys, MANY)[7].cold == 1


def test_tasks_that_packed_by_another_entry_stop_the_query() -> None:
    harness = Harness(*load_script(script("JOIN", "FINAL")), buckets=2)
    steps = skewed(5, hot=5)
    for step in steps[:4]:
        harness.step(step)
    harness._pack = lambda part, rows, spec: list(pack(harness._project(part, rows).to_batches(), spec))  # type: ignore[method-assign]
    with pytest.raises(CheckpointError, match="that all its tasks see is of batch None"):
        harness.step(steps[4])


# -- the log on Spark --------------------------------------------------------------------------------------------------

SPREAD = {7: HotKey(0, Phase.SPREAD)}


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The batch, query and run that Spark reports to the running task."""
    told = {"batch_id": 0, "query_id": "q", "run_id": "first"}
    for name in tuple(told):
        monkeypatch.setattr(hot_key_files, name, lambda name=name: told[name])
    return told


def test_the_log_gives_each_batch_the_newest_entry_before_it(tmp_path: Path, task: dict[str, Any]) -> None:
    log = HotKeyFiles(str(tmp_path / "hot keys"), "join_1")
    assert log.read() == Entry()
    for batch in (0, 3, 5):
        task["batch_id"] = batch
        keys = {batch: HotKey(0, Phase.COPIED, until=batch)}
        assert log.append(Entry(), keys, (1, 2)) == Entry(batch, keys)
    assert log.read() == Entry(3, {3: HotKey(0, Phase.COPIED, until=3)})
    task["batch_id"] = 9
    assert log.read().batch == 5
    assert log.append(log.read(), log.read().keys, (1, 2)).batch == 5
    assert len(list((tmp_path / "hot keys").rglob("*.json"))) == 2


def test_what_another_attempt_of_the_run_has_decided_holds(tmp_path: Path, task: dict[str, Any]) -> None:
    log = HotKeyFiles(str(tmp_path), "join_1")
    log.append(Entry(), SPREAD, (1, 2))
    assert log.append(Entry(), {}, (1, 2)) == Entry(0, SPREAD)
    with pytest.raises(CheckpointError, match="was written for other rows than this batch has"):
        log.append(Entry(), {}, (1, 3))


def test_what_an_earlier_run_did_not_commit_is_dropped(tmp_path: Path, task: dict[str, Any]) -> None:
    log = HotKeyFiles(str(tmp_path), "join_1")
    log.append(Entry(), SPREAD, (1, 2))
    task["run_id"] = "second"
    other = {8: HotKey(0, Phase.COPIED, until=4)}
    assert log.append(Entry(), other, (1, 2)) == Entry(0, other)
    task["run_id"] = "third"
    assert log.append(Entry(), {}, (1, 2)) == Entry()
    task["batch_id"] = 1
    assert log.read() == Entry()


def test_a_folder_that_workers_do_not_reach_is_told_in_a_sentence(task: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"the hot keys in dbfs://here/q/join_1 cannot be read or written"):
        HotKeyFiles("dbfs://here", "join_1").read()


def test_copies_fit_where_the_source_has_no_nulls() -> None:
    harness = Harness(*load_script(script("LEFT JOIN", "FINAL")), buckets=3)
    packs = []
    for spec in harness._tasks.packs:
        strict = pa.schema([each.with_nullable(not each.name.endswith(":n")) for each in spec.schema])
        packs.append(replace(spec, schema=strict))
    harness._tasks = replace(harness._tasks, packs=tuple(packs))
    for step in skewed(6, hot=6):
        harness.step(step)
