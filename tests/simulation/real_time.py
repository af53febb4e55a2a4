"""A query in simulated real time: buckets stay open for an epoch, whose state counts once all of it is written.

An epoch that fails (a task is killed, or an operation on the checkpoint fails) is done again by another run, from the
state that the epoch before has left; tasks of the run before may still be writing theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from tests.real_time.epoch_harness import counted, net
from tests.simulation.actors import Actor
from tests.simulation.decisions import Decisions
from tests.simulation.disk import SimulatedDisk, mounted
from tests.simulation.faults import Faults, is_of_disk
from tests.simulation.spark import as_spark
from tests.simulation.workers import Machine, Worker
from tests.support.live_harness import LiveHarness, outboxes
from watersmeet.catalog.streams import StreamDef
from watersmeet.engine.bucket_step import OpenBucket
from watersmeet.engine.control_events import Event
from watersmeet.engine.frames import Frame
from watersmeet.engine.live_results import LiveOperator
from watersmeet.engine.outbox import Outbox
from watersmeet.engine.specs import OperatorSpec
from watersmeet.runtime.real_time.epochs import Epochs, RunStart, next_run
from watersmeet.sql.statements import Query, StatementSet
from watersmeet.state.epoch_store import EpochStore
from watersmeet.testing.rig import StepInput, StepOutcome

#: What a join of many streams has sampled of the rows that came together, to choose its order.
_BY_ORDER = ("sampled", "found", "expected")
#: What depends on the number of steps: rows that are retracted in the step in which they come cancel out, and a row
#: that is final in that step may stay until the next one.
_BY_STEPS = ("results", "matched", "segments", "state_bytes", "state_rows", "held", "held_bytes", *_BY_ORDER)
#: What depends on it too, of rows that are the results of another operator.
_OF_RESULTS = ("in", "used", "filtered", "newest")


class EpochFailedError(Exception):
    """The epoch must be done again."""


class RealTimeSimulation(LiveHarness):
    """One query in real time, where ``decisions`` rule; an epoch has one to four steps."""

    def __init__(
        self, streams: Mapping[str, StreamDef], query: Query | StatementSet, *, buckets: int = 2, decisions: Decisions
    ) -> None:
        self._decisions = decisions
        self._machine = Machine()
        self._workers = [Worker(number, self._machine, 1 << 30) for number in range(decisions.number(1, 3))]
        self._steps = decisions.number(1, 4)
        self._faults = Faults(decisions, decisions.one_of([0.0, 0.01, 0.04]), decisions.number(0, 8))
        self._disk = SimulatedDisk(lambda operation: self._faults.happens(f"a {operation} fails"))
        self._runs: list[RunStart] = []
        self._committed: int | None = None
        self._zombies: list[Actor] = []
        self._taken: list[tuple[Mapping[str, StepInput], Sequence[Event], list[StepOutcome]]] = []
        super().__init__(streams, query, buckets=buckets, max_step_bytes=decisions.one_of([None, None, 150]))
        self._before = (self._rows_fed.copy(), dict(self._counters))
        decisions.note(f"{len(self._workers)} worker(s), {len(self._buckets)} bucket(s), {self._steps} steps an epoch")

    def restart(self) -> None:
        """Begin another run; what the epoch under way has done does not count."""
        super().restart()
        self._begin_run()
        if self._taken:
            with self._world():
                self._repeat()

    def step_all(self, inputs: Mapping[str, StepInput], events: Sequence[Event] = ()) -> list[StepOutcome]:
        """Take a step; the epoch ends after some of them, and with the input."""
        with self._world():
            outcomes: list[StepOutcome] = self._until_done(partial(super().step_all, inputs, events))
            self._taken.append((inputs, events, outcomes))
            if len(self._taken) == self._steps or events:
                self._until_done(self._commit)
            return outcomes

    def end(self) -> None:
        """End what still runs, and delete what the machine holds."""
        for zombie in self._zombies:
            zombie.kill()
        self._machine.remove()

    @contextmanager
    def _world(self) -> Iterator[None]:
        with mounted(self._disk), as_spark(self._decisions):
            yield

    # -- epochs ------------------------------------------------------------------------------------------------------

    def _until_done(self, do: Callable[[], Any]) -> Any:
        while True:
            try:
                return do()
            except EpochFailedError:
                self._begin_run()
                self._repeat()

    def _begin_run(self) -> None:
        run, first, base = next_run(self._runs, self._committed)
        self._decisions.note(f"run {run}, from epoch {first} on, after run {base}")
        self._runs.append(RunStart(first=first))
        self._epochs = Epochs("checkpoint/epochs", run, first, base)
        self._open: dict[tuple[str, int], tuple[EpochStore, OpenBucket]] = {}
        for worker in self._workers:
            if self._decisions.happens(0.5):
                worker.die()

    def _repeat(self) -> None:
        """Take the steps of the epoch again: they must give the same."""
        self._rows_fed, self._counters = self._before[0].copy(), dict(self._before[1])
        for inputs, events, before in self._taken:
            try:
                again = super().step_all(inputs, events)
            except EpochFailedError:
                self._begin_run()
                self._repeat()
                return
            assert [net(each) for each in again] == [net(each) for each in before]
            assert self._counted_alike(again[0]) == self._counted_alike(before[0])

    def _counted_alike(self, outcome: StepOutcome) -> dict[str, int]:
        """The counters that a repeat must give again: frames come in any order, and so in any number of steps."""
        of_results = {
            f"{spec.name}.{counter}.{input.label}"
            for spec in self._operators
            for input in spec.inputs
            if input.source is None or input.is_of_results
            for counter in _OF_RESULTS
        }
        found = counted(outcome).items()
        return {name: n for name, n in found if name.split(".")[1] not in _BY_STEPS and name not in of_results}

    def _commit(self) -> None:
        """Write the state of all buckets, one at a time and in any order, and commit the epoch."""
        writing = [
            self._actor(f"the state of {name} {bucket}", partial(self._epochs.write, store))
            for (name, bucket), (store, _) in self._open.items()
        ]
        while writing:
            actor = self._decisions.one_of(writing)
            if not actor.resume():
                writing.remove(actor)
                self._raise_failure(actor, writing)
            elif self._faults.happens(f"the run is killed while it writes {actor.name}"):
                self._leave(writing)
                raise EpochFailedError
            self._resume_zombie()
        if self._faults.happens("the run is killed before the epoch is committed", 0.05):
            raise EpochFailedError
        self._committed = 0 if self._committed is None else self._committed + 1
        self._decisions.note(f"epoch {self._committed} is committed")
        self._open, self._taken = {}, []
        self._before = (self._rows_fed.copy(), dict(self._counters))
        if self._decisions.happens(0.2):
            self._begin_run()

    # -- tasks -------------------------------------------------------------------------------------------------------

    def _order(self, buckets: Sequence[int]) -> list[int]:
        return self._decisions.shuffled(buckets)

    def _taken_by(self, operator: LiveOperator, bucket: int, frames: list[Frame]) -> list[Outbox]:
        shuffled = self._decisions.shuffled(frames)
        actor = self._actor(f"{operator.spec.name} {bucket}", partial(self._stepped, operator, bucket, shuffled))
        while actor.resume():
            if self._faults.happens(f"{actor.name} is killed"):
                self._leave([actor])
                raise EpochFailedError
            self._resume_zombie()
        self._raise_failure(actor, [])
        sent: list[Outbox] = actor.result
        return sent

    def _stepped(self, operator: LiveOperator, bucket: int, frames: list[Frame]) -> list[Outbox]:
        opened = self._opened(operator.spec, bucket)
        return list(outboxes(operator, opened, bucket, frames)) if frames else []

    def _opened(self, spec: OperatorSpec, bucket: int) -> OpenBucket:
        """A bucket of the epoch; every epoch opens all of them, as the first mark of a source does."""
        key = (spec.name, bucket)
        if key not in self._open:
            store = self._epochs.open("operators", spec.name, str(bucket))
            sets = self._decisions.one_of(self._workers).sets
            working_set = sets.get(f"run-{self._epochs.run}", spec.name, str(bucket))
            opened = OpenBucket(spec, bucket, store, working_set, max_step_bytes=self.max_step_bytes)
            opened.close()
            self._open[key] = (store, opened)
        return self._open[key][1]

    def _actor(self, name: str, run: Callable[[], Any]) -> Actor:
        epoch = 0 if self._committed is None else self._committed + 1
        return Actor(name, run, {"streaming.sql.batchId": str(epoch), "process": str(self._epochs.run)})

    def _raise_failure(self, actor: Actor, others: list[Actor]) -> None:
        """Fail the epoch if an operation on the disk failed."""
        if actor.error is None:
            return
        self._leave(others)
        if is_of_disk(actor.error):
            self._decisions.note(f"  {actor.name} failed: {str(actor.error).splitlines()[0]}")
            actor.error = None
            raise EpochFailedError
        raise actor.error

    def _leave(self, actors: Sequence[Actor]) -> None:
        """The run is over: what was writing state may go on for a while, or is killed."""
        for actor in actors:
            if actor.name.startswith("the state of") and self._decisions.happens(0.5):
                self._zombies.append(actor)
            else:
                actor.kill()

    def _resume_zombie(self) -> None:
        if self._zombies and self._decisions.happens(0.2):
            zombie = self._decisions.one_of(self._zombies)
            if not zombie.resume():
                self._decisions.note(f"  {zombie.name}, of an earlier run, has been written")
                self._zombies.remove(zombie)
