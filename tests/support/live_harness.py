"""The harness with the frames of real time: each bucket sends its results on by itself, step by step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tests.support.cut_steps import cut
from watersmeet.engine.bucket_step import OpenBucket
from watersmeet.engine.control_events import Event
from watersmeet.engine.frames import Frame, FrameKind
from watersmeet.engine.live_results import LiveOperator
from watersmeet.engine.outbox import Outbox
from watersmeet.plan.live_operators import live_operators
from watersmeet.plan.shared_results import receiver
from watersmeet.plan.worker_specs import pack_specs
from watersmeet.runtime.real_time.stages import stages_of
from watersmeet.testing.expressions import Projection
from watersmeet.testing.harness import Harness, control_frames
from watersmeet.testing.results import results_table
from watersmeet.testing.rig import StepInput, StepOutcome


class LiveHarness(Harness, ABC):
    """A query whose buckets stay open; ``_taken_by`` says how one of them takes the frames of a step."""

    def restart(self) -> None:
        super().restart()
        packs = pack_specs(self.plan, self._schemas, self._buckets, self._kept)
        self._packs, self._live = packs, live_operators(self.plan, self._operators, packs, self._schemas)

    def step_all(self, inputs: Mapping[str, StepInput], events: Sequence[Event] = ()) -> list[StepOutcome]:
        here: dict[int, dict[int, list[Frame]]] = defaultdict(lambda: defaultdict(list))
        by_stream = {name.lower(): rows for name, rows in inputs.items()}
        for number, part in enumerate(self.plan.inputs):
            if not part.branches and (fed := by_stream.get(part.input.stream.name.lower())) is not None:
                for frame in self._pack(part, fed, self._packs[number]):
                    here[receiver(self.plan, number)][frame.bucket].append(frame)
        for name, rows in by_stream.items():
            self._rows_fed[name] += len(rows.rows) + len(rows.raw)
        results: list[Frame] = []
        for number in (number for stage in stages_of(self.plan) for number in stage):
            operator = self._live[number]
            for frame in control_frames(operator.spec, events):
                here[number][frame.bucket].append(frame)
            for bucket in self._order(operator.spec.buckets):
                for outbox in self._taken_by(operator, bucket, here[number][bucket]):
                    results += outbox if operator.is_last else ()
                    for to, sent in (*operator.addressed(bucket, outbox), *self._by_spark(operator, bucket, outbox)):
                        for frame in sent:
                            here[to][frame.bucket].append(frame)
        return [
            self._outcome([frame for frame in results if frame.input == number], query, schema)
            for number, (query, schema) in enumerate(self._results())
        ]

    def _by_spark(self, operator: LiveOperator, bucket: int, outbox: Outbox) -> Iterator[tuple[int, list[Frame]]]:
        """What would come back from Spark for each operator."""
        asked = list(operator.asked(bucket, outbox))
        for reading in operator.by_spark:
            part, own = self.plan.inputs[reading.input], [frame for frame in asked if reading.takes(frame)]
            rows = [replace(frame, kind=FrameKind.ROWS) for frame in own if frame.payload]
            of_branches = [rows if place == reading.branch else [] for place in range(len(part.branches))]
            schemas = [self._operators[branch.operator].output for branch in part.branches]
            for end in (frame for frame in own if not frame.payload):
                computed = Projection(part).of(results_table(part, of_branches, schemas))
                yield reading.operator, list(reading.packed(computed if rows else None, end))

    def _order(self, buckets: Sequence[int]) -> Iterable[int]:
        """The order in which buckets take a step."""
        return sorted(buckets)

    @abstractmethod
    def _taken_by(self, operator: LiveOperator, bucket: int, frames: list[Frame]) -> Iterable[Outbox]:
        """What a bucket sends on for frames, of which there may be none."""


def outboxes(operator: LiveOperator, opened: OpenBucket, bucket: int, frames: list[Frame]) -> Iterator[Outbox]:
    """What a bucket sends on for frames, in one step or in several, and what it reports after them."""
    for step in [frames] if operator.is_last else cut(operator.spec, frames):
        yield from operator.step(opened, step)
    yield Outbox(operator.spec, bucket, {}, opened.close())
