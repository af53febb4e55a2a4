"""Runs the cases of the test notation on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from pyspark.sql import SparkSession

from watersmeet.catalog.streams import StreamDef
from watersmeet.engine.control_events import Event
from watersmeet.errors import WatersmeetError
from watersmeet.sql.statements import Query
from watersmeet.testing.case import Case
from watersmeet.testing.cells import Row
from watersmeet.testing.rig import Rig, StepInput, StepOutcome
from watersmeet.testing.runner import Failure, Turn, case_turns, crash, failure_of, run_case
from watersmeet.testing.script import load_script
from watersmeet.testing.spark_group import SparkGroup


class SparkRig(Rig):
    """One query on Spark, with the interface of the harness; call ``close`` at the end."""

    def __init__(
        self, spark: SparkSession, folder: Path, streams: Mapping[str, StreamDef], query: Query, *, buckets: int = 2
    ) -> None:
        self._group = SparkGroup(spark, folder, buckets=buckets)
        self._run = self._group.add(streams, query)
        super().__init__(self._run.plan, self._run.column_types)

    def restart(self) -> None:
        """Drop everything that is not durable."""
        self._group.restart()

    def fill(self, table: str, rows: Sequence[Row]) -> None:
        """Replace the rows of an external table."""
        self._run.fill(table, rows)

    def step(self, inputs: Mapping[str, StepInput], events: Sequence[Event] = ()) -> StepOutcome:
        """Feed rows by stream name and control events; return what the query emits."""
        return self._group.step({0: inputs}, {0: events})[0]

    def close(self) -> None:
        """Stop the Spark query."""
        self._group.close()


@contextmanager
def spark_rigs(spark: SparkSession, folder: Path) -> Iterator[Callable[[Mapping[str, StreamDef], Query], SparkRig]]:
    """Yield a maker of rigs for ``run_case``; each new rig, and the end, stops the one before."""
    made: list[SparkRig] = []
    numbers = count()

    def make(streams: Mapping[str, StreamDef], query: Query) -> SparkRig:
        while made:
            made.pop().close()
        made.append(SparkRig(spark, folder / f"rig-{next(numbers)}", streams, query))
        return made[-1]

    try:
        yield make
    finally:
        while made:
            made.pop().close()


def run_group(spark: SparkSession, cases: Sequence[Case], folder: Path, *, buckets: int = 2) -> list[Failure | None]:
    """Run cases side by side; return for each one the first difference, or None.

    A restart that one case asks for restarts all of them, which must not change any result.  If the run itself fails,
    the cases run again one by one, to find the one at fault.
    """
    failures: list[Failure | None] = [None] * len(cases)
    group = SparkGroup(spark, folder / "group", buckets=buckets)
    try:
        _run_together(group, cases, failures)
    except Exception:  # noqa: BLE001 - the single runs report it
        group.close()
        with spark_rigs(spark, folder) as make:
            return [_run_alone(case, make) for case in cases]
    finally:
        group.close()
    return failures


def _run_together(group: SparkGroup, cases: Sequence[Case], failures: list[Failure | None]) -> None:
    runs = {}
    for index, case in enumerate(cases):
        if case.error is not None:
            failures[index] = run_case(case)
            continue
        streams, query = load_script(case.script_in_place)
        has_raw = any(block.raw for step in case.steps for block in step.inputs)
        runs[index] = group.add(streams, query, has_raw=has_raw)
    turns = {index: case_turns(cases[index], run.streams, run) for index, run in runs.items()}
    due: dict[int, Turn] = {}
    outcomes: dict[int, StepOutcome] = {}
    while turns:
        for index in list(turns):
            try:
                due[index] = turns[index].send(outcomes.get(runs[index].number))  # type: ignore[arg-type]
                continue
            except StopIteration as end:
                failures[index] = end.value
            except WatersmeetError as error:
                failures[index] = failure_of(cases[index], error)
            due.pop(index, None)
            del turns[index]
        if not due:
            return
        if any(turn.restart for turn in due.values()):
            group.restart()
        for index, turn in due.items():
            for table, rows in turn.tables.items():
                runs[index].fill(table, rows)
        by_number = {runs[index].number: turn for index, turn in due.items()}
        outcomes = group.step(
            {number: turn.inputs for number, turn in by_number.items()},
            {number: turn.events for number, turn in by_number.items()},
        )


def _run_alone(case: Case, make: Callable[[Mapping[str, StreamDef], Query], SparkRig]) -> Failure | None:
    try:
        return run_case(case, make)
    except Exception as error:  # noqa: BLE001 - reported as this case's failure
        return crash(case, error)
