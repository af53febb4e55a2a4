"""Random queries on the right side of joins as of a time, in random batches with restarts, against DuckDB.

Results are final, so those of a changelog are compared after each step only where the right side is a view of a stream.
"""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from tests.conftest import ALL
from tests.random_queries.as_of import as_of_joins
from tests.random_queries.rows import feeds, streams
from tests.random_queries.seeded import try_examples
from tests.random_queries.test_trees import REFUSED, check, runs
from tests.random_queries.tree_run import Example
from watersmeet.testing.harness import Harness

EXAMPLES = 60 if ALL else 5
#: What the generator cannot foresee, beside what it cannot foresee of any query.
NOT_AS_OF = (
    "are corrected (",
    "have no event time by which",
    "is not an event time",
    "expected a time of the left side",
    "holds its event time",
    "would hold from the beginning of their windows on",
    "must compare a time of the left side",
)


@st.composite
def examples(draw: st.DrawFn) -> Example:
    given = draw(streams())
    tree = draw(as_of_joins(given))
    emit = draw(st.sampled_from(["", "\nEMIT CHANGELOG", "\nEMIT FINAL"]))
    buckets, small = draw(st.sampled_from([1, 2, 4])), draw(st.booleans())
    return Example(given, tree, emit, draw(feeds(given)), buckets, small, tree.right.stream)


@pytest.mark.timeout(600)  # a failure takes its time to shrink
@pytest.mark.parametrize(("kind", "seed"), list(runs()))
def test_a_query_as_of_a_time_gives_the_newest_of_its_rows(kind: type[Harness], seed: int) -> None:
    try_examples(examples(), lambda example: check(example, kind, (*REFUSED, *NOT_AS_OF)), seed=seed, most=EXAMPLES)
