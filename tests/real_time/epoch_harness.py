"""The harness as real time works: buckets stay open for an epoch of several steps, which may have to run again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.support.live_harness import LiveHarness, outboxes
from watersmeet.catalog.streams import StreamDef
from watersmeet.engine.bucket_step import OpenBucket
from watersmeet.engine.control_events import Event
from watersmeet.engine.frames import Frame
from watersmeet.engine.live_results import LiveOperator
from watersmeet.engine.outbox import Outbox
from watersmeet.engine.specs import OperatorSpec
from watersmeet.kernels.lookup import COUNTERS
from watersmeet.sql.statements import Query, StatementSet
from watersmeet.state.epoch_store import EpochStore
from watersmeet.testing.cells import canonical_row, consolidate
from watersmeet.testing.rig import StepInput, StepOutcome


class EpochHarness(LiveHarness):
    """A query whose state is committed after every ``steps`` steps, an epoch.

    Operators do not keep step (see ``tests.support.cut_steps``).

    Before that, the epoch is given up once and repeated.  It must give the same results, except for lookups: a table
    may have changed meanwhile.
    """

    def __init__(
        self,
        streams: Mapping[str, StreamDef],
        query: Query | StatementSet,
        folder: Path,
        *,
        steps: int = 2,
        buckets: int = 2,
    ) -> None:
        self._folder, self._steps, self._epoch = folder, steps, 0
        self._open: dict[tuple[str, int], tuple[EpochStore, OpenBucket]] = {}
        self._taken: list[tuple[Mapping[str, StepInput], Sequence[Event], list[StepOutcome]]] = []
        super().__init__(streams, query, buckets=buckets)
        self._before = (self._rows_fed.copy(), dict(self._counters))

    def restart(self) -> None:
        if self._taken:
            self._commit()
        self._open = {}
        super().restart()

    def step_all(self, inputs: Mapping[str, StepInput], events: Sequence[Event] = ()) -> list[StepOutcome]:
        outcomes = super().step_all(inputs, events)
        self._taken.append((inputs, events, outcomes))
        if len(self._taken) == self._steps:
            self._commit()
        return outcomes

    def _commit(self) -> None:
        self._open, (self._rows_fed, self._counters) = {}, self._before
        self._working_sets.forget()
        for inputs, events, before in self._taken:
            again = super().step_all(inputs, events)
            if not self.plan.tables:
                assert list(map(net, again)) == list(map(net, before))
                assert counted(again[0]) == counted(before[0])
        for store, _ in self._open.values():
            store.write(f"{self._epoch:03}")
        self._open, self._taken = {}, []
        self._before = (self._rows_fed.copy(), dict(self._counters))
        self._epoch += 1

    def _taken_by(self, operator: LiveOperator, bucket: int, frames: list[Frame]) -> Iterator[Outbox]:
        opened = self._opened(operator.spec, bucket)
        if frames:
            yield from outboxes(operator, opened, bucket, frames)

    def _opened(self, spec: OperatorSpec, bucket: int) -> OpenBucket:
        """A bucket of the epoch; every epoch opens all of them, as the first mark of a source does."""
        key = (spec.name, bucket)
        if key not in self._open:
            base = f"{self._epoch - 1:03}" if self._epoch else None
            store = EpochStore(str(self._folder / spec.name / str(bucket)), base)
            store.remove_unused()
            opened = OpenBucket(spec, bucket, store, self._working_sets.get(spec.name, str(bucket)))
            opened.close()
            self._open[key] = (store, opened)
        return self._open[key][1]


def net(outcome: StepOutcome) -> list[str]:
    return sorted(repr((weight, canonical_row(row))) for weight, row in consolidate(outcome.changes))


def counted(outcome: StepOutcome) -> dict[str, int]:
    """All counters but those that a repeated epoch changes: what was loaded or looked up, memory, times of steps."""
    of_the_process = ("loaded_bytes", "disk_bytes", "worker_bytes", "step_time")
    differing = (*of_the_process, *(each for each in COUNTERS if each != "lookup_failed"))
    return {name: value for name, value in outcome.counters.items() if name.split(".")[1] not in differing}
