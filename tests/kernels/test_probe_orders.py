"""The orders in which new rows probe the stores of a multi-way join: sketch, estimates, choice, and no effect."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernels.test_multi_way import Query, check, queries
from watersmeet.kernels.multi_way import statistics
from watersmeet.kernels.multi_way.estimates import Estimates
from watersmeet.kernels.multi_way.key_sample import MAX_KEYS, MAX_ROWS, KeySample
from watersmeet.kernels.multi_way.match import Bound, JoinedInput, MultiWayMatch, Term
from watersmeet.kernels.multi_way.probe_orders import Order, cheapest_order
from watersmeet.kernels.multi_way.statistics import MAX_AGE, Statistics
from watersmeet.plan.explain import explain
from watersmeet.testing.harness import Harness, StepInput, StepOutcome, load_script


def match_of(
    inputs: int, *, bounds: Sequence[Bound] = (), reach: int | None = 9, terms: Sequence[Term] = ()
) -> MultiWayMatch:
    names = "abcdef"[:inputs]
    joined = tuple(JoinedInput(f"{name}:$t", (f"{name}:k",), (f"{name}:k",), reach) for name in names)
    return MultiWayMatch(joined, (False,), tuple(bounds), tuple(terms), output=("a:k",))


# -- the sketch ----------------------------------------------------------------------------------------------------


def hashes_of(keys: Any) -> Any:
    """Well mixed hashes (splitmix64, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        mixed = (np.asarray(keys, np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))


def add(sample: KeySample, keys: Sequence[Any]) -> None:
    """Add rows with these keys, by input."""
    inputs = np.concatenate([np.full(len(each), input, np.uint64) for input, each in enumerate(keys)])
    hashes = hashes_of(np.concatenate(keys))
    sample.add({input: len(each) for input, each in enumerate(keys)}, inputs, hashes, np.ones_like(hashes))


def matches(sample: KeySample, input: int, probed: Order, old: Sequence[int]) -> float:
    return Estimates(match_of(len(old)), sample, old, [0] * len(old)).matches(input, probed)


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=40), min_size=3, max_size=3))
def test_of_few_keys_the_sketch_knows_all_matches(keys: list[list[int]]) -> None:
    sample = KeySample([0.0] * 3)
    add(sample, keys)
    sample = KeySample.from_json(json.loads(json.dumps(sample.to_json())))
    found = sum(a == b == c for a, b, c in product(*keys))
    estimated = len(keys[0]) * matches(sample, 0, (1, 2), [len(each) for each in keys])
    assert estimated == pytest.approx(found, abs=1e-5)


@pytest.mark.parametrize("keys", [500, 20_000])
def test_of_many_keys_a_sample_estimates_matches(keys: int) -> None:
    rng = np.random.default_rng(3)
    sample = KeySample([0.0] * 2)
    for _ in range(3):
        add(sample, [rng.integers(0, keys, 20_000), rng.integers(0, keys // 2, 10_000)])
        assert len(sample.counts) <= MAX_KEYS
    assert sample.level > 0
    assert matches(sample, 0, (1,), [60_000, 30_000]) == pytest.approx(30_000 / keys, rel=0.5)


def test_the_sketch_follows_a_stream_whose_keys_change() -> None:
    sample = KeySample([0.0] * 2)
    rng = np.random.default_rng(3)
    for start in (0, 1_000_000):
        for _ in range(8):
            add(sample, [rng.integers(start, start + 5_000, 30_000), rng.integers(0, 5_000, 30_000)])
        assert sum(sample.rows) <= MAX_ROWS
        estimated = matches(sample, 0, (1,), [30_000, 30_000])
        assert (estimated > 3) is (start == 0), estimated


def test_without_rows_nothing_matches() -> None:
    assert matches(KeySample([0.0] * 2), 0, (1,), [5, 5]) < 1e-6


# -- estimates -----------------------------------------------------------------------------------------------------


def test_a_window_holds_a_share_of_the_rows_that_stay() -> None:
    match = match_of(3, bounds=[Bound(0, 1, 0, 4), Bound(0, 2, -5, 4), Bound(1, 2, -5, 4)])
    assert match.share_near(1, (0, 1)) == 0.5  # five times of ten
    assert match.share_near(2, (0, 1, 2)) == 1
    assert match_of(3, reach=None).share_near(1, (0,)) == 1


def test_new_rows_probe_new_rows_of_later_inputs_alone() -> None:
    estimates = Estimates(match_of(3), KeySample([0.0] * 3), [10, 20, 30], [1, 2, 3])
    assert [estimates.probed_rows(1, other) for other in (0, 2)] == [10, 33]


def test_conditions_make_matches_fewer() -> None:
    sample = KeySample([0.0] * 3)
    add(sample, [[7], [7], [7]])
    of = {
        terms: Estimates(match_of(3, terms=[Term(each, "") for each in terms]), sample, [1] * 3, [0] * 3).matches(
            0, (1,)
        )
        for terms in ((), ((0, 1),), ((0, 2),), ((0, 1), (0, 1)))
    }
    assert [round(9 * found) for found in of.values()] == [9, 3, 9, 1]


# -- choice --------------------------------------------------------------------------------------------------------


@given(st.data(), st.integers(1, 5))
def test_the_order_of_fewest_partial_results_is_found(data: st.DataObject, count: int) -> None:
    """Against all permutations, for any number of partial results of any set of inputs."""
    others = data.draw(st.permutations(range(7)))[:count]
    found: dict[Order, int] = {}

    def partials(probed: Order) -> float:
        return found.setdefault(probed, data.draw(st.integers(0, 9)))

    def cost(order: Sequence[int]) -> float:
        return sum(partials(tuple(sorted(order[:probes]))) for probes in range(1, len(order)))

    best = min(permutations(sorted(others)), key=lambda order: (cost(order), order))
    assert cheapest_order(others, partials) == best


def test_of_many_inputs_the_search_stays_small() -> None:
    asked = Counter[Order]()

    def partials(probed: Order) -> float:
        asked[probed] += 1
        return sum(20 - each for each in probed)

    assert cheapest_order(range(20), partials) == tuple(reversed(range(20)))
    assert asked.total() < 20 * 32 * 20


def test_what_was_measured_takes_the_place_of_an_estimate_until_it_is_old() -> None:
    knows = Statistics.of(match_of(3), {})
    add(knows.sample, [[1, 2], [1, 1], [2]])
    estimates = Estimates(knows.match, knows.sample, [2, 2, 1], [2, 2, 1])

    def update() -> Order:
        knows.grow_old()
        knows.choose_orders(estimates)
        return knows.orders[0]

    assert update() == (2, 1)
    knows.record(estimates, 0, rows=2, partials=[9])
    kept = Statistics.of(knows.match, json.loads(json.dumps(knows.to_json())))
    assert kept == knows
    assert knows.gauges == {"sampled.0>2>1": 2, "expected.0>2>1.1": pytest.approx(2), "found.0>2>1.1": 9}
    assert [update() for _ in range(MAX_AGE + 1)] == [(1, 2)] * MAX_AGE + [(2, 1)]
    assert knows.gauges == {}, "they are those of the order in force"


def test_the_larger_of_two_relations_probes() -> None:
    knows = Statistics.of(match_of(3), {})
    add(knows.sample, [[1] * 10, [1] * 10, [1] * 10])
    knows.choose_orders(Estimates(knows.match, knows.sample, [30] * 3, [10] * 3))
    assert knows.builds == [(False, True)] * 3, "10 rows probe 30, and 300 or so partial results probe 30"


# -- in queries ----------------------------------------------------------------------------------------------------

SCRIPT = "".join(
    f"CREATE STREAM {name} (k INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');\n"
    for name in "abc"
) + (
    "SELECT a.v AS x, b.v AS y, c.v AS z FROM a JOIN b ON a.k = b.k JOIN c ON c.k = a.k WITHIN INTERVAL '10' SECONDS "
    "EMIT FINAL SETTINGS multi_join = 'on';"
)


def steps_of(harness: Harness, keys: dict[str, int], first: int, count: int) -> Iterator[StepOutcome]:
    """Feed steps of 20 rows a stream, one step a second, with so many keys in each stream."""
    rng = random.Random(first)
    for ts in range(first, first + count):
        rows = {name: [(rng.randrange(keys[name]), 0, ts) for _ in range(20)] for name in keys}
        yield harness.step({name: StepInput(each) for name, each in rows.items()})


def orders_of(outcome: StepOutcome) -> set[str]:
    return {name.split(".", 2)[2] for name in outcome.counters if ".sampled." in name}


@pytest.mark.slow
@pytest.mark.parametrize("buckets", [2, 1])
def test_new_rows_probe_where_few_match_first_and_the_orders_drift_with_the_streams(buckets: int) -> None:
    harness = Harness(*load_script(SCRIPT), buckets=buckets)
    assert "probe orders: a > b > c, b > a > c, c > a > b by windows" in explain(harness.plan)
    *_, outcome = steps_of(harness, {"a": 10, "b": 10, "c": 1000}, 0, 10)
    assert {"0>2>1", "1>2>0"} < orders_of(outcome), "for c, a and b are alike"
    harness.restart()
    *_, outcome = steps_of(harness, {"a": 10, "b": 10, "c": 1000}, 10, 1)
    (line,) = (each for each in explain(harness.plan, outcome.counters).splitlines() if "order a" in each)
    assert line.startswith("  probe order a > c > b: 0.")
    assert " partial results a row after c (0." in line
    assert line.endswith(" expected); measured over 100 rows"), "in the steps 1, 2, 3, 5 and 9"
    *_, outcome = steps_of(harness, {"a": 10, "b": 1000, "c": 10}, 11, 60)
    assert {"0>1>2", "2>1>0"} < orders_of(outcome)


def test_left_joins_keep_the_order_of_the_text() -> None:
    text = SCRIPT.replace(" JOIN ", " LEFT JOIN ").replace("WITHIN INTERVAL '10' SECONDS", "")
    text = text.replace("ON a.k = b.k", "ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + 10")
    text = text.replace("ON c.k = a.k", "ON c.k = a.k AND c.ts BETWEEN a.ts AND a.ts + 10")
    harness = Harness(*load_script(text))
    *_, outcome = steps_of(harness, {"a": 10, "b": 10, "c": 1000}, 0, 3)
    assert orders_of(outcome) == set()
    assert "probe order" not in explain(harness.plan, outcome.counters)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=queries(), data=st.data(), seed=st.integers(0, 999))
def test_no_result_depends_on_orders(
    query: Query, data: st.DataObject, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any order and any build side, another in each step."""
    rng = random.Random(seed)

    def at_random(knows: Statistics, _: Estimates) -> None:
        inputs = range(len(knows.match.inputs))
        knows.orders = [tuple(rng.sample([j for j in inputs if j != i], len(inputs) - 1)) for i in inputs]
        knows.builds = [tuple(rng.random() < 0.5 for _ in order) for order in knows.orders]

    with monkeypatch.context() as patch:
        patch.setattr(Statistics, "choose_orders", at_random)
        patch.setattr(Statistics, "are_due", True)
        check(query, data)


def test_the_first_steps_are_due_and_then_every_64th() -> None:
    due = [step for step in range(400) if Statistics(match_of(3), KeySample([0.0] * 3), step).are_due]
    assert due == [0, 1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 320, 384]
    assert max(after - before for before, after in pairwise(due)) == statistics.PERIOD
