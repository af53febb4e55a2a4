"""Runs the tasks of a stage as Spark does: attempts fail, hang, are repeated, or go on when nobody waits for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.simulation.actors import Actor
from tests.simulation.decisions import Decisions
from tests.simulation.faults import Faults, is_of_disk
from tests.simulation.workers import Worker

#: So often a task may fail, as ``spark.task.maxFailures`` says.
_MOST_FAILURES = 4


class DriverKilledError(Exception):
    """The driver is gone; what it had begun must be done again."""


@dataclass(frozen=True, slots=True)
class Task:
    """Work for one worker; every attempt calls ``run`` anew."""

    name: str
    run: Callable[[Worker], Any]


@dataclass(frozen=True, slots=True, eq=False)
class _Attempt:
    number: int  # of the task in its stage
    actor: Actor
    worker: Worker


class Executors:
    """All workers of a query, whose attempts meet ``faults`` where they pause."""

    def __init__(self, decisions: Decisions, workers: Sequence[Worker], faults: Faults) -> None:
        self._decisions = decisions
        self._workers = workers
        self._faults = faults
        self._zombies: list[_Attempt] = []

    def run(self, tasks: Sequence[Task], properties: Mapping[str, str]) -> list[list[Any]]:
        """Run a stage; return the outputs of each task's attempts that ended, of which any may be read.

        Raises ``DriverKilledError`` if the driver is killed meanwhile.  An attempt that fails because of the disk is
        repeated; what another one raises is raised.
        """
        running: list[_Attempt] = []
        try:
            return self._run(tasks, properties, running)
        finally:
            self._leave(running)

    def _run(self, tasks: Sequence[Task], properties: Mapping[str, str], running: list[_Attempt]) -> list[list[Any]]:
        outputs: list[list[Any]] = [[] for _ in tasks]
        failures = [0] * len(tasks)
        due = self._decisions.shuffled(range(len(tasks)))
        while due or any(not outputs[each.number] for each in running):
            if due and (not running or self._decisions.happens(0.6)):
                worker = self._free_worker(bool(running))
                if worker is not None:
                    running.append(self._begin(tasks, due.pop(), worker, properties))
                    continue
            self._resume_zombie()
            attempt = self._decisions.one_of(running)
            if not attempt.actor.resume():
                running.remove(attempt)
                attempt.worker.is_free = True
                self._take(attempt, outputs, failures, due)
            elif self._faults.happens(f"a fault at {attempt.actor.name}"):
                self._strike(attempt, running, due)
        return outputs

    def end(self) -> None:
        """End all attempts that are still there."""
        for attempt in self._zombies:
            attempt.actor.kill()
            attempt.worker.is_free = True
        self._zombies = []

    def _begin(self, tasks: Sequence[Task], number: int, worker: Worker, properties: Mapping[str, str]) -> _Attempt:
        worker.is_free = False
        run = partial(tasks[number].run, worker)
        return _Attempt(number, Actor(tasks[number].name, run, {**properties, "process": worker.process}), worker)

    def _take(self, attempt: _Attempt, outputs: list[list[Any]], failures: list[int], due: list[int]) -> None:
        """Take what an attempt that has ended gives; its task may be due again."""
        actor, number = attempt.actor, attempt.number
        if actor.error is None:
            outputs[number].append(actor.result)
            if self._faults.happens(f"the output of {actor.name} is lost for some readers"):
                due.append(number)
            return
        failures[number] += 1
        if not is_of_disk(actor.error):
            raise actor.error
        self._decisions.note(f"  {actor.name} failed: {str(actor.error).splitlines()[0]}")
        actor.error = None
        if failures[number] == _MOST_FAILURES:
            self._decisions.note(f"  {actor.name} has failed too often: the run ends, and another begins")
            raise DriverKilledError
        due.append(number)

    def _strike(self, attempt: _Attempt, running: list[_Attempt], due: list[int]) -> None:
        """Let one of the faults happen that a running attempt may have."""
        match self._decisions.number(1, 8):
            case 1 | 2 | 3:
                self._decisions.note(f"    {attempt.worker.name} is killed")
                running.remove(attempt)
                self._kill(attempt)
                due.append(attempt.number)
            case 4 | 5:
                self._decisions.note("    it hangs, and is given up")
                running.remove(attempt)
                self._zombies.append(attempt)
                due.append(attempt.number)
            case 6 | 7:
                self._decisions.note("    it is slow, and another attempt begins")
                due.append(attempt.number)
            case _:
                self._decisions.note("    the driver is killed")
                for worker in self._workers:
                    if worker.is_free and self._decisions.happens(0.5):
                        worker.die()
                raise DriverKilledError

    def _leave(self, running: list[_Attempt]) -> None:
        """Nobody waits for these any more: some are killed, some go on."""
        for attempt in running:
            if self._decisions.happens(0.5):
                self._zombies.append(attempt)
            else:
                self._kill(attempt)
        running.clear()

    def _kill(self, attempt: _Attempt) -> None:
        attempt.actor.kill()
        attempt.worker.die()
        attempt.worker.is_free = True

    def _free_worker(self, others_run: bool) -> Worker | None:
        """A worker for a task; one with a zombie is freed if there is no other and nothing else could go on."""
        free = [worker for worker in self._workers if worker.is_free]
        if not free and not others_run:
            zombie = self._zombies.pop()
            self._kill(zombie)
            free = [zombie.worker]
        return self._decisions.one_of(free) if free else None

    def _resume_zombie(self) -> None:
        if not self._zombies or not self._decisions.happens(0.2):
            return
        zombie = self._decisions.one_of(self._zombies)
        if not zombie.actor.resume():
            self._decisions.note(f"  {zombie.actor.name}, which had been given up, has ended")
            self._zombies.remove(zombie)
            zombie.worker.is_free = True
