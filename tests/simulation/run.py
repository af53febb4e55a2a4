"""One seed: a query, its rows, and what happens on the cluster.

``python -m tests.simulation.run FIRST COUNT`` tries more seeds than the tests do.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from dataclasses import replace

import duckdb
import hypothesis
from hypothesis import HealthCheck, Phase, given, settings

from tests.random_queries.queries import COUNTS
from tests.random_queries.run import Example, Run
from tests.random_queries.test_over_joins import REFUSED
from tests.random_queries.test_over_joins import examples as examples_over_joins
from tests.random_queries.test_random_queries import examples
from tests.random_queries.tree_run import Example as TreeExample
from tests.random_queries.tree_run import complaints
from tests.simulation.decisions import Decisions
from tests.simulation.real_time import RealTimeSimulation
from tests.simulation.simulation import Simulation
from watersmeet.catalog.streams import StreamDef
from watersmeet.errors import WatersmeetError
from watersmeet.sql.statements import Query, StatementSet

#: How many joins and steps most examples have, and after how many seeds there is a line of progress.
FEW, STEPS, REPORTED = (1, 1, 2), (2, 3, 5), 100


def example_of(seed: int) -> Example | TreeExample:
    """The query and rows of a seed, in two steps or more: of four out of five seeds a query of few joins.

    That of every other seed has joins alone; the others have aggregates, DISTINCT, top-n or lookups over joins.
    """
    joins = COUNTS if seed % 5 == 0 else FEW
    strategy = examples(joins, STEPS) if seed % 2 else examples_over_joins(joins, STEPS)
    drawn: list[Example | TreeExample] = []

    # the first of the two examples is always the simplest there is
    @hypothesis.seed(seed)
    @settings(
        max_examples=2, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(strategy)
    def draw(example: Example | TreeExample) -> None:
        drawn.append(example)

    draw()
    return drawn[-1]


def simulate(seed: int, decisions: Decisions | None = None) -> str | None:
    """What is wrong with a seed, and how it came about; None if nothing is, or if there is no such query."""
    decisions = decisions or Decisions(seed)
    example = replace(example_of(seed), buckets=decisions.number(1, 3))
    made: list[Simulation | RealTimeSimulation] = []
    try:
        complaints = _complaints(example, decisions, made)
    except Exception as error:  # noqa: BLE001  # whatever it is, it has a story
        complaints = ["".join(traceback.format_exception(error))]
    finally:
        for each in made:
            each.end()
    return "\n".join([f"seed {seed}", *complaints, example.case(), *decisions.story]) if complaints else None


def _complaints(
    example: Example | TreeExample, decisions: Decisions, made: list[Simulation | RealTimeSimulation]
) -> list[str]:
    """Run an example in what is added to ``made``; what is wrong, which is nothing if the query is refused."""
    # an epoch that is done again finds what tables hold by then
    may_change = isinstance(example, TreeExample) and any(len(table.contents) > 1 for table in example.tables)

    def cluster(
        streams: Mapping[str, StreamDef], query: Query | StatementSet, *, buckets: int
    ) -> Simulation | RealTimeSimulation:
        if decisions.happens(0.25) and not may_change:
            made.append(RealTimeSimulation(streams, query, buckets=buckets, decisions=decisions))
        else:
            with_parts = decisions.happens(0.3)
            made.append(Simulation(streams, query, buckets=buckets, decisions=decisions, with_parts=with_parts))
        return made[-1]

    try:
        if isinstance(example, TreeExample):
            return complaints(example, cluster)
        run = Run(example, cluster)
        return list(run.complaints(example.answers(only_last=run.is_final)))
    except WatersmeetError as error:
        if any(known in str(error) for known in REFUSED):
            return []
        raise
    except (duckdb.InternalException, duckdb.InvalidInputException):  # a few semi joins break DuckDB itself
        return []


def main(first: int, count: int) -> None:
    """Print each wrong seed when it is found, and now and then how far this has come."""
    wrong = 0
    for number, seed in enumerate(range(first, first + count), 1):
        if (found := simulate(seed)) is not None:
            wrong += 1
            print(f"{found}\n", flush=True)
        if number % REPORTED == 0 or number == count:
            print(f"{number} seeds from {first}: {wrong} wrong", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
