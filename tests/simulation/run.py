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

from tests.random_queries.run import Example, Run, batch_answers
from tests.random_queries.test_random_queries import REFUSED, examples
from tests.simulation.decisions import Decisions
from tests.simulation.real_time import RealTimeSimulation
from tests.simulation.simulation import Simulation
from watersmeet.catalog.streams import StreamDef
from watersmeet.errors import PlanError, UnsupportedError
from watersmeet.sql.statements import Query, StatementSet


def example_of(seed: int) -> Example:
    """The query and rows of a seed, in two steps or more: of four out of five seeds a query of few joins."""
    drawn: list[Example] = []

    @hypothesis.seed(seed)
    @settings(
        max_examples=5, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(examples())
    def draw(example: Example) -> None:
        drawn.append(example)

    draw()
    able = [example for example in drawn if len(example.feed.steps) > 1] or drawn
    return able[-1] if seed % 5 == 0 else min(able, key=lambda example: len(example.query.sources))


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


def _complaints(example: Example, decisions: Decisions, made: list[Simulation | RealTimeSimulation]) -> list[str]:
    """Run an example in what is added to ``made``; what is wrong, which is nothing if the query is refused."""

    def cluster(
        streams: Mapping[str, StreamDef], query: Query | StatementSet, *, buckets: int
    ) -> Simulation | RealTimeSimulation:
        if decisions.happens(0.25):
            made.append(RealTimeSimulation(streams, query, buckets=buckets, decisions=decisions))
        else:
            with_parts = decisions.happens(0.3)
            made.append(Simulation(streams, query, buckets=buckets, decisions=decisions, with_parts=with_parts))
        return made[-1]

    try:
        run = Run(example, cluster)
        answers = batch_answers(example, only_last=run.is_final)
    except (PlanError, UnsupportedError) as error:
        if any(known in str(error) for known in REFUSED):
            return []
        raise
    except (duckdb.InternalException, duckdb.InvalidInputException):  # a few semi joins break DuckDB itself
        return []
    return list(run.complaints(answers))


def main(first: int, count: int) -> None:
    wrong = [found for seed in range(first, first + count) if (found := simulate(seed)) is not None]
    print("\n\n".join([*wrong, f"{count} seeds from {first}: {len(wrong)} wrong"]))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
