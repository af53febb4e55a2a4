"""Aggregates, DISTINCT, top-n and lookups over random joins, in random batches with restarts, against DuckDB."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import strategies as st

from tests.conftest import ALL
from tests.random_queries import test_random_queries, test_trees
from tests.random_queries.over_joins import over_joins
from tests.random_queries.queries import COUNTS
from tests.random_queries.rows import feeds, streams
from tests.random_queries.seeded import try_examples
from tests.random_queries.test_trees import check, runs
from tests.random_queries.tree_run import Example
from watersmeet.testing.harness import Harness

EXAMPLES = 20 if ALL else 5
#: What the generator cannot foresee.
REFUSED = (
    *test_random_queries.REFUSED,
    *test_trees.REFUSED,
    "is a changelog; a fresh lookup",
    "is a changelog: the rows of",
    "cannot choose the rows of t: it reads several streams, or one whose rows an outer join may pad",
    "can be computed by Spark alone",  # in real time
)


@st.composite
def examples(draw: st.DrawFn, joins: Sequence[int] = COUNTS, steps: Sequence[int] = (1, 2, 3, 5)) -> Example:
    given = draw(streams())
    tree, tables, emit = draw(over_joins(given, joins))
    settings = "\nSETTINGS multi_join = 'off'" if draw(st.booleans()) else ""
    buckets, small = draw(st.sampled_from([1, 2, 4])), draw(st.booleans())
    return Example(given, tree, emit, draw(feeds(given, steps)), buckets, small, tables=tables, settings=settings)


@pytest.mark.timeout(600)  # a failure takes its time to shrink
@pytest.mark.parametrize(("kind", "seed"), list(runs()))
def test_what_stands_over_joins_gives_what_it_gives_over_whole_tables(kind: type[Harness], seed: int) -> None:
    try_examples(examples(), lambda example: check(example, kind, REFUSED), seed=seed, most=EXAMPLES)
