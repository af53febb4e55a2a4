"""Random queries on the right side of joins as of a time, in random batches with restarts, against DuckDB.

Results are final, so those of a changelog are compared after each step only where the right side is a view of a stream.
"""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.conftest import ALL
from tests.random_queries.as_of import as_of_joins
from tests.random_queries.rows import feeds, streams
from tests.random_queries.seeded import try_examples
from tests.random_queries.test_trees import REFUSED, Example, complaints, runs
from tests.random_queries.test_trees import answers as answers_of
from watersmeet.errors import WatersmeetError
from watersmeet.testing.harness import Harness, load_script

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


def check(example: Example, kind: type[Harness]) -> None:
    most = 1 if example.small else None
    try:
        harness = kind(*load_script(example.script), buckets=example.buckets, max_step_bytes=most)
    except WatersmeetError as error:
        if any(known in str(error) for known in (*REFUSED, *NOT_AS_OF)):
            hypothesis.reject()
        raise
    found = list(complaints(example, harness, answers_of(example)))
    assert not found, "\n".join([*found, example.text()])


@pytest.mark.timeout(600)  # a failure takes its time to shrink
@pytest.mark.parametrize(("kind", "seed"), list(runs()))
def test_a_query_as_of_a_time_gives_the_newest_of_its_rows(kind: type[Harness], seed: int) -> None:
    try_examples(examples(), lambda example: check(example, kind), seed=seed, most=EXAMPLES)
