"""Random queries over the results of queries, in random batches with restarts, against DuckDB over all rows so far.

A changelog must add up to the batch answer after every step; what is final is given once, and all of it at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import hypothesis
import pyarrow as pa
import pytest
from _pytest.mark import ParameterSet
from hypothesis import strategies as st

from tests.conftest import ALL
from tests.random_queries.growing import trees
from tests.random_queries.rows import Feed, Streams, feeds, streams
from tests.random_queries.run import END, TABLE
from tests.random_queries.seeded import try_examples
from tests.random_queries.trees import Tree
from tests.support.cut_steps import CutHarness
from watersmeet.errors import WatersmeetError
from watersmeet.kernels.api import EmitMode
from watersmeet.testing.harness import Harness, StepInput, load_script

EXAMPLES = 40 if ALL else 8
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


@dataclass(frozen=True)
class Example:
    streams: Streams
    tree: Tree
    emit: str
    feed: Feed
    buckets: int
    small: bool
    compares_steps: bool = True

    @property
    def script(self) -> str:
        return f"{self.streams.sql()}{self.tree.sql(duck=False)}{self.emit}"

    def text(self) -> str:
        """The example as a case, and in DuckDB."""
        lines = [f"\n{self.script};", ""]
        for step in self.feed.steps:
            lines += [">>> restart"] if step.restart else []
            for name, changes in step.changes.items():
                lines += [f">>> {name}"]
                lines += [
                    ("- " if c[4] < 0 else "") + ", ".join("NULL" if x is None else str(x) or "''" for x in c[:4])
                    for c in changes
                ]
            lines += ["<<<"]
        lines += [f"-- {self.buckets} buckets, small steps: {self.small}, end with last: {self.feed.ends_with_last}"]
        return "\n".join([*lines, self.tree.sql(duck=True)])


@st.composite
def examples(draw: st.DrawFn) -> Example:
    given = draw(streams())
    tree = draw(trees(given, draw(st.sampled_from([2, 1, 3, 4]))))
    emit = draw(st.sampled_from(["\nEMIT CHANGELOG", "\nEMIT CHANGELOG", "", "\nEMIT FINAL"]))
    return Example(given, tree, emit, draw(feeds(given)), draw(st.sampled_from([1, 2, 4])), draw(st.booleans()))


def answers(example: Example) -> list[Counter[Any]]:
    """What DuckDB answers over the rows that hold after each step."""
    found = []
    with duckdb.connect(config={"threads": 1}) as connection:
        for step in range(1, len(example.feed.steps) + 1):
            for name, stream in example.streams.streams.items():
                rows = [(*row, seq) for seq, row in stream.holding(example.feed.arrived(name, step))]
                columns = [[row[i] for row in rows] for i in range(len(TABLE))]
                connection.register(name, pa.table(columns, schema=TABLE))
            found.append(Counter(connection.execute(example.tree.sql(duck=True)).fetchall()))
    return found


def complaints(example: Example, harness: Harness, wanted: list[Counter[Any]]) -> Iterator[str]:
    """Feed everything; what is wrong after each step of a changelog, and at the end."""
    final = harness.plan.emission.mode is EmitMode.FINAL
    total: Counter[Any] = Counter()
    feed, given = example.feed, example.streams.streams
    outcome, has_begun = None, False
    for number in range(len(feed.steps) + (not feed.ends_with_last)):
        last = number >= len(feed.steps) - feed.ends_with_last
        step = feed.steps[number] if number < len(feed.steps) else None
        if step is not None and step.restart:
            harness.restart()
        inputs = (
            {}
            if step is None
            else {
                name: StepInput(changes if given[name].key else [each[:4] for each in changes])
                for name, changes in step.changes.items()
                if harness.inputs_of(name)
            }
        )
        has_begun = has_begun or bool(inputs) or last  # before its first rows a query has no batch
        outcome = harness.step(inputs, END if last else ())
        for weight, row in outcome.changes:
            total[row] += weight
            if final and weight < 0:
                yield f"step {number}: final, but takes back {row}"
        total = Counter({row: count for row, count in total.items() if count})
        if any(count < 0 for count in total.values()):
            yield f"step {number}: below zero {total}"
        at_once = not final and example.compares_steps and "CHANGELOG" in example.emit
        answer = wanted[min(number, len(wanted) - 1)]
        if has_begun and (at_once or last) and total != answer:
            yield f"step {number}: missing {dict(answer - total)}, unexpected {dict(total - answer)}"
    if outcome is not None and outcome.count("late"):
        yield f"late rows: {outcome.counters}"


def check(example: Example, kind: type[Harness]) -> None:
    try:
        harness = kind(
            *load_script(example.script), buckets=example.buckets, max_step_bytes=1 if example.small else None
        )
    except WatersmeetError as error:
        if any(known in str(error) for known in REFUSED):
            hypothesis.reject()
        raise
    found = list(complaints(example, harness, answers(example)))
    assert not found, "\n".join([*found, example.text()])


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
