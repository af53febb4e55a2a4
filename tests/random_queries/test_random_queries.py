"""Random queries over random streams, in random batches with restarts, against DuckDB's answer over whole tables.

Each seed gives the same examples in every run, of which a failing one is shrunk and printed as a case:
``pytest tests/random_queries -k seed7``. Most seeds run with WATERSMEET_TEST_ALL=1 only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import duckdb
import hypothesis
import pytest
from _pytest.mark import ParameterSet
from hypothesis import strategies as st

from tests.conftest import ALL
from tests.random_queries.queries import COUNTS, queries
from tests.random_queries.rows import feeds, streams
from tests.random_queries.run import Example, Run
from tests.random_queries.seeded import try_examples
from tests.support.cut_steps import CutHarness
from tests.support.rescaled import RescaledHarness
from watersmeet.errors import PlanError, UnsupportedError
from watersmeet.testing.harness import Harness

EXAMPLES = 10 if ALL else 5  # of each seed; from the eleventh on, Hypothesis would only vary those before
SEEDS, ALL_SEEDS, RESCALED_SEEDS = 1, 120, 60

#: What the generator cannot foresee, since it follows from the windows of several joins.
REFUSED = (
    "the window of this join is empty",
    "EMIT FINAL cannot bound the state",
    "cannot be a key of a join as of a time",
    "would wait forever: a result may have any",
    "ORDER BY emits rows once they are final",
)


@st.composite
def examples(draw: st.DrawFn, joins: Sequence[int] = COUNTS, steps: Sequence[int] = (1, 2, 3, 5)) -> Example:
    given = draw(streams())
    query = replace(draw(queries(given, joins)), chained=draw(st.booleans()))
    return Example(given, query, draw(feeds(given, steps)), draw(st.sampled_from([1, 1, 2])))


def check(example: Example, harness: type[Harness]) -> None:
    try:
        run = Run(example, harness)
    except (PlanError, UnsupportedError) as error:
        if any(known in str(error) for known in REFUSED):
            hypothesis.reject()
        raise
    try:
        answers = example.answers(only_last=run.is_final)
    except duckdb.InternalException:  # a few semi joins over subselects break DuckDB itself
        hypothesis.reject()
    complaints = list(run.complaints(answers))
    assert not complaints, "\n".join([*complaints, example.case()])


def runs() -> Iterator[ParameterSet]:
    """Seeds with operators that keep step, some that do not, or others after a restart; few in a quick run."""
    kinds = (Harness, SEEDS, ALL_SEEDS), (CutHarness, 0, ALL_SEEDS), (RescaledHarness, 0, RESCALED_SEEDS)
    for harness, quick, seeds in kinds:
        for seed in range(seeds):
            marks = [pytest.mark.slow] if seed >= quick else []
            yield pytest.param(harness, seed, id=f"{harness.__name__}-seed{seed}", marks=marks)


@pytest.mark.timeout(600)  # a failure takes its time to shrink
@pytest.mark.parametrize(("harness", "seed"), list(runs()))
def test_a_query_gives_what_the_same_query_gives_over_whole_tables(harness: type[Harness], seed: int) -> None:
    try_examples(examples(), lambda example: check(example, harness), seed=seed, most=EXAMPLES)
