"""Random queries over the results of queries, in random batches with restarts, against DuckDB over all rows so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import duckdb
import hypothesis
import pytest
from _pytest.mark import ParameterSet
from hypothesis import strategies as st

from tests.conftest import ALL
from tests.random_queries.growing import trees
from tests.random_queries.rows import feeds, streams
from tests.random_queries.seeded import try_examples
from tests.random_queries.tree_run import Example, complaints
from tests.support.cut_steps import CutHarness
from watersmeet.errors import WatersmeetError
from watersmeet.testing.harness import Harness

EXAMPLES = 40 if ALL else 5
QUICK, SEEDS = 1, 100

#: What the generator cannot foresee: it names columns without knowing when their rows come.
REFUSED: tuple[str, ...] = (
    "cannot bound the state",
    "so any result may have to be corrected",
    "this function is not supported there",
    "no key says when the last one has come",
    "a window function changes with the rows of its partition",
    "is not the event time of",
    "the window of this join is empty",
    "each is in one window at a time",
)


@st.composite
def examples(draw: st.DrawFn) -> Example:
    given = draw(streams())
    tree = draw(trees(given, draw(st.sampled_from([2, 1, 3, 4]))))
    emit = draw(st.sampled_from(["\nEMIT CHANGELOG", "\nEMIT CHANGELOG", "", "\nEMIT FINAL"]))
    return Example(given, tree, emit, draw(feeds(given)), draw(st.sampled_from([1, 2, 4])), draw(st.booleans()))


def check(example: Example, kind: type[Harness], refused: Sequence[str] = REFUSED) -> None:
    try:
        found = complaints(example, partial(kind, max_step_bytes=1 if example.small else None))
    except WatersmeetError as error:
        if any(known in str(error) for known in refused):
            hypothesis.reject()
        raise
    except duckdb.InternalException:  # a few semi joins over subselects break DuckDB itself
        hypothesis.reject()
    assert not found, "\n".join([*found, example.case()])


def runs() -> Iterator[ParameterSet]:
    """A few seeds in a quick run; also with operators that do not keep step."""
    for kind in (Harness, CutHarness):
        for seed in range(SEEDS):
            marks = [pytest.mark.slow] if seed >= (QUICK if kind is Harness else 1) else []
            yield pytest.param(kind, seed, id=f"{kind.__name__}-seed{seed}", marks=marks)


@pytest.mark.timeout(600)  # a failure takes its time to shrink
@pytest.mark.parametrize(("kind", "seed"), list(runs()))
def test_a_tree_of_queries_gives_what_it_gives_over_whole_tables(kind: type[Harness], seed: int) -> None:
    try_examples(examples(), lambda example: check(example, kind), seed=seed, most=EXAMPLES)
