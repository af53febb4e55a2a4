"""A query on a simulated Spark: the same packing, steps, state and files, under a scheduler that decides what happens.

A batch is planned, its sources are packed, its operators run stage by stage, its results are written, and it is
committed.  Every attempt at a task is an actor.  The driver may be killed between any two of these, and tasks wherever
they pause: before every write to the state, every operation on the checkpoint's files, and after every frame.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tests.simulation.decisions import Decisions
from tests.simulation.disk import SimulatedDisk, mounted
from tests.simulation.executors import DriverKilledError, Executors, Task
from tests.simulation.faults import Faults
from tests.simulation.spark import as_spark
from tests.simulation.state import StateVersions
from tests.simulation.tasks import SIDE_FOLDER, Given, RunOfBatch, Sent
from tests.simulation.workers import Machine, Worker
from tests.support.index_lookups import always_looked_up
from watersmeet.catalog.streams import StreamDef
from watersmeet.engine.control_events import Event
from watersmeet.engine.frames import Frame, to_record_batch
from watersmeet.engine.specs import OperatorSpec
from watersmeet.plan.task_specs import Task as JointTask
from watersmeet.sql.statements import Query, StatementSet
from watersmeet.testing.cells import Row, canonical_row, consolidate
from watersmeet.testing.harness import Harness, control_frames, result_changes
from watersmeet.testing.rig import StepInput, StepOutcome

#: From so many rows in a batch on a key may be hot.
_HOT_ROWS = 2


@dataclass(frozen=True, slots=True)
class _Batch:
    """What Spark's log of offsets says of a batch: the rows of each source, and control events."""

    number: int
    rows: Sequence[pa.Table | None]
    events: Sequence[Event]


class Simulation(Harness):
    """One query, or those of a statement set, on a cluster where ``decisions`` rule.

    With ``with_parts``, rows of a source come from two partitions, each with a watermark of its own.  With ``sooner``,
    a key with two rows in a batch is a hot one, and few rows are settled: the state has other rows than without.
    """

    def __init__(
        self,
        streams: Mapping[str, StreamDef],
        query: Query | StatementSet,
        *,
        buckets: int = 2,
        decisions: Decisions,
        with_parts: bool = False,
        sooner: bool = True,
    ) -> None:
        self._decisions = decisions
        self._machines = [Machine() for _ in range(decisions.number(1, 2))]
        keyed_bytes = decisions.one_of([1 << 30, 0])
        self._workers = [
            Worker(number, decisions.one_of(self._machines), keyed_bytes) for number in range(decisions.number(1, 4))
        ]
        rate = decisions.one_of([0.0, 0.02, 0.06, 0.15])
        self._faults = Faults(decisions, rate, decisions.number(1, 12))
        self._executors = Executors(decisions, self._workers, self._faults)
        self._disk = SimulatedDisk(lambda operation: self._faults.happens(f"a {operation} fails", rate / 4))
        self._versions = StateVersions()
        self._tasks_of_operator = decisions.number(1, 3)
        self._exchange_bytes = decisions.one_of([0, 1 << 30])
        self._looks_up = decisions.happens(0.3)
        self._sooner = sooner
        self._parts = ("0", "1") if with_parts else ("",)
        self._run, self._committed = 0, 0
        self._written: dict[int, list[list[str]]] = {}
        self._quarantined = 0
        super().__init__(streams, query, buckets=buckets, max_step_bytes=decisions.one_of([None, None, 1, 150, 2000]))
        decisions.note(
            f"{len(self._machines)} machine(s), {len(self._workers)} worker(s), {len(self._buckets)} bucket(s); rows "
            f"in {'memory' if keyed_bytes else 'files'}{', looked up' if self._looks_up else ''}; "
            f"{self.max_step_bytes or 'all'} bytes a step"
        )

    def restart(self) -> None:
        """Begin another run of the query; workers of the run before may still be there."""
        self._run += 1
        self._decisions.note(f"run {self._run}")
        for worker in self._workers:
            if worker.is_free and self._decisions.happens(0.5):
                worker.die()
        specs = self._specs(self._parts)
        self._begin([_spreading_sooner(spec) if self._sooner else spec for spec in specs])

    def fill(self, table: str, rows: Sequence[Row]) -> None:
        """Replace the rows of an external table; attempts that still run would look up what comes after their batch."""
        self._executors.end()
        super().fill(table, rows)

    def step_all(self, inputs: Mapping[str, StepInput], events: Sequence[Event] = ()) -> list[StepOutcome]:
        """Run one batch, until it is committed."""
        fed = {name.lower(): rows for name, rows in inputs.items()}
        streams = [part.input.stream.name.lower() for part in self.plan.inputs]
        rows = [
            self._in_parts(self._project(part, fed[stream])) if stream in fed and not part.branches else None
            for part, stream in zip(self.plan.inputs, streams, strict=True)
        ]
        for name, each in fed.items():
            self._rows_fed[name] += len(each.rows) + len(each.raw)
        batch = _Batch(self._committed + 1, rows, events)
        with ExitStack() as world:
            world.enter_context(mounted(self._disk))
            world.enter_context(as_spark(self._decisions, sooner=self._sooner))
            if self._looks_up:
                world.enter_context(always_looked_up())
            while True:
                try:
                    return self._attempt(batch)
                except DriverKilledError:
                    self.restart()

    def end(self) -> None:
        """End what still runs, and delete what machines hold."""
        self._executors.end()
        for machine in self._machines:
            machine.remove()

    def _in_parts(self, rows: pa.Table) -> pa.Table:
        """Rows with the partitions that they come from."""
        if len(self._parts) == 1:
            return rows
        return rows.append_column("$part", pa.array([self._decisions.one_of(self._parts) for _ in range(len(rows))]))

    # -- the driver --------------------------------------------------------------------------------------------------

    def _attempt(self, batch: _Batch) -> list[StepOutcome]:
        """Run a batch once; raises ``DriverKilledError`` if another run must do it again."""
        self._decisions.note(f"batch {batch.number}")
        run = self._run_of(batch)
        self._driver_may_die("before anything has run")
        packed = self._packed(run, batch)
        sent: dict[int, list[list[Sent]]] = {}  # by operator and task, what its attempts have sent
        for task in self._tasks.tasks:
            if self._faults.happens("a disk loses something", 0.05):
                self._decisions.one_of(self._machines).damage(self._decisions)
            senders: list[list[Sent]] = []
            for feed in (feed for number in task.operators for feed in self.plan.operators[number].feeds):
                if feed.source is None:
                    assert feed.operator is not None
                    senders += sent.get(feed.operator, [])
                    continue
                below = {branch.operator for branch in self.plan.inputs[feed.source].branches}
                if below and not below & set(task.operators):
                    packed[feed.source] = self._repacked(run, feed.source, sent)
                senders += packed[feed.source]
            if events := control_frames(self._operators[task.operators[0]], batch.events):
                senders.append([[to_record_batch(events)]])
            sent[task.operators[-1]] = self._executors.run(
                self._operator_tasks(run, task, senders), self._properties(batch)
            )
        given: list[Any] = [self._decisions.one_of(outputs) for outputs in sent[len(self._operators) - 1]]
        self._driver_may_die("before results are written")
        outcomes = self._outcomes(batch, given)
        self._write(batch, outcomes)
        self._driver_may_die("before the batch is committed")
        self._committed = batch.number
        self._quarantined = sum(value for name, value in self._counters.items() if name.split(".")[1] == "quarantined")
        return outcomes

    def _run_of(self, batch: _Batch) -> RunOfBatch:
        is_one_machine = len(self._machines) == 1
        return RunOfBatch(
            run=f"run-{self._run}",
            batch=batch.number,
            decisions=self._decisions,
            versions=self._versions,
            exchange_folder=str(self._machines[0].folder) if is_one_machine else None,
            exchange_bytes=self._exchange_bytes,
            max_step_bytes=self.max_step_bytes,
            schemas=[schema for _, schema in self._results()],
        )

    def _packed(self, run: RunOfBatch, batch: _Batch) -> list[list[list[Sent]]]:
        """By source and task, what the attempts at packing it have sent."""
        receivers = {spec.name: spec for spec in self._operators}
        tasks: list[Task] = []
        sources: list[int] = []
        for source, (rows, spec) in enumerate(zip(batch.rows, self._tasks.packs, strict=True)):
            if rows is None:
                continue
            for start, stop in self._decisions.cut(rows.num_rows, 3):
                piece = rows.slice(start, stop - start)
                receiver = receivers[spec.operator]

                def packed(_: Worker, piece=piece, spec=spec, receiver=receiver) -> Sent:  # type: ignore[no-untyped-def]
                    return run.pack(piece, spec, receiver)

                tasks.append(Task(f"batch {batch.number}, rows {start} to {stop} of {spec.source}", packed))
                sources.append(source)
        by_source: list[list[list[Sent]]] = [[] for _ in batch.rows]
        for source, outputs in zip(sources, self._executors.run(tasks, self._properties(batch)), strict=True):
            by_source[source].append(outputs)
        return by_source

    def _repacked(self, run: RunOfBatch, number: int, sent: Mapping[int, list[list[Sent]]]) -> list[list[Sent]]:
        """What is sent of the results of operators to the one that reads them, of any attempts at these."""
        results: dict[int, list[Frame]] = defaultdict(list)
        for operator in {branch.operator for branch in self.plan.inputs[number].branches}:
            for attempts in sent[operator]:
                results[operator] += run.received(self._decisions.one_of(attempts))
        return [[[to_record_batch(self._pack_results(number, results))]]]

    def _operator_tasks(self, run: RunOfBatch, of: JointTask, senders: Sequence[Sequence[Sent]]) -> list[Task]:
        """A task for some buckets each.  Of the attempts of a sender, every bucket reads the output of any."""
        last = of.members[-1].spec
        is_last = of.operators[-1] == len(self._operators) - 1
        tasks = []
        for number in range(min(self._tasks_of_operator, len(last.buckets))):
            buckets = last.buckets[number :: self._tasks_of_operator]

            def operated(worker: Worker, buckets=buckets) -> Any:  # type: ignore[no-untyped-def]
                arriving = [(bucket, [self._decisions.one_of(each) for each in senders]) for bucket in buckets]
                sent = run.operate(of.members, arriving, worker)
                return run.give(sent) if is_last else sent

            tasks.append(Task(f"batch {run.batch}, {last.name} {', '.join(map(str, buckets))}", operated))
        return tasks

    def _properties(self, batch: _Batch) -> dict[str, str]:
        return {
            "streaming.sql.batchId": str(batch.number),
            "spark.jobGroup.id": f"run-{self._run}",
            "sql.streaming.queryId": "query",
        }

    def _driver_may_die(self, when: str) -> None:
        if self._faults.happens(f"the driver is killed {when}", 0.03):
            raise DriverKilledError

    # -- results -----------------------------------------------------------------------------------------------------

    def _outcomes(self, batch: _Batch, given: Sequence[Given]) -> list[StepOutcome]:
        counters = self._counted(frame for each in given for frame in each.counters)
        outcomes = []
        for number, (query, schema) in enumerate(self._results()):
            rows = [table for each in given for table in each.rows[number]]
            side = self._side_rows(batch) if number == 0 else []
            changes = result_changes(rows, query, schema)
            if self.plan.weighted and self.max_step_bytes:  # of what one step gives the next may take back
                changes = consolidate(changes)
            outcomes.append(StepOutcome(changes, side, counters))
        return outcomes

    def _side_rows(self, batch: _Batch) -> list[dict[str, str]]:
        """What tasks have written for the batch; of bad rows, as many as have been counted since the batch before."""
        names = [name for name in self._disk.names(SIDE_FOLDER) if name.startswith(f"batch-{batch.number}-")]
        files = [self._disk.files[f"{SIDE_FOLDER}/{name}"] for name in names]
        rows = [json.loads(line) for file in files for line in file.splitlines()]
        bad = sum(row["kind"] == "quarantined" for row in rows)
        counted = sum(value for name, value in self._counters.items() if name.split(".")[1] == "quarantined")
        assert bad == counted - self._quarantined, f"{bad} bad rows in files, {counted - self._quarantined} counted"
        return rows

    def _write(self, batch: _Batch, outcomes: Sequence[StepOutcome]) -> None:
        """Write results to a sink; what is written again must be the same."""
        written = [
            sorted(repr((weight, canonical_row(row))) for weight, row in consolidate(each.changes)) for each in outcomes
        ]
        before = self._written.setdefault(batch.number, written)
        assert written == before, f"batch {batch.number} is written again: {written} after {before}"


def _spreading_sooner(spec: OperatorSpec) -> OperatorSpec:
    return spec if spec.spread is None else replace(spec, spread=replace(spec.spread, min_rows=_HOT_ROWS))
