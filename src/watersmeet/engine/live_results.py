"""What a bucket sends on in real time: frames by the operator that takes them.

An operator's results go to the next one as they are, or become the rows of inputs of others (plan/nesting.py).  In
micro-batches a task of its own packs them, when all buckets have ended their step.  Here each bucket does so for
itself, step by step, and is a part of the input with a frontier of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from watersmeet.engine.frames import Frame, FrameKind, passed_on
from watersmeet.engine.outbox import Outbox
from watersmeet.engine.pack import Packer
from watersmeet.engine.results import ResultProjection, rows_of_input
from watersmeet.engine.specs import OperatorSpec, PackSpec
from watersmeet.errors import WatersmeetError
from watersmeet.kernels.api import shift


@dataclass(frozen=True, slots=True)
class LiveReading:
    """How results become rows of an input of ``operator``, a number in the query."""

    operator: int
    projection: ResultProjection
    packing: PackSpec


@dataclass(frozen=True, slots=True)
class LiveOperator:
    """An operator, and where its results go.

    ``sends_to`` is the operator that takes them as they are, ``readings`` are the inputs that they are rows of; the
    last operator of a query has neither.  ``beside`` are the operators whose buckets are in the same task as its own.
    """

    spec: OperatorSpec
    sends_to: int | None = None
    readings: tuple[LiveReading, ...] = ()
    beside: frozenset[int] = frozenset()

    @property
    def is_last(self) -> bool:
        """Whether the results are those of the query."""
        return self.sends_to is None and not self.readings

    def addressed(self, bucket: int, outbox: Outbox) -> Iterator[tuple[int, list[Frame]]]:
        """Yield the frames for each operator that takes results of a bucket, with the operator's number."""
        if self.sends_to is not None:
            yield self.sends_to, self._kept_here(self.sends_to, bucket, outbox)
        for place, reading in enumerate(self.readings):
            frames = self._read(bucket, outbox, reading, passes_others=place == 0)
            yield reading.operator, self._kept_here(reading.operator, bucket, frames)

    def _read(self, bucket: int, outbox: Outbox, reading: LiveReading, *, passes_others: bool) -> Iterator[Frame]:
        """Yield results as frames of an input: rows, frames that only pass, and frontiers after all rows."""
        packing, projection, here = reading.packing, reading.projection, None
        part = part_of_bucket(projection.part, bucket)
        if reading.operator in self.beside:
            here, part, packing = bucket, projection.part, packing.kept_in(bucket)
        packer = Packer(packing, here=here)
        if outbox.changes is not None and outbox.changes.num_rows:
            yield from packer.pack(rows_of_input(outbox.changes.cast(self.spec.output), projection))
        for frame in outbox.others:
            if frame.kind is FrameKind.MARK:  # also one without a frontier: every bucket hears of every epoch
                packer.observe(part, shift(frame.frontier, -projection.lag))
            elif passes_others:
                yield passed_on(frame, packing.buckets)
        yield from packer.finish()

    def _kept_here(self, operator: int, bucket: int, frames: Iterable[Frame]) -> list[Frame]:
        """Return the frames; those for a bucket in this task are all for that of the same number."""
        if operator not in self.beside:
            return list(frames)
        found = []
        for frame in frames:
            if frame.kind.has_rows and frame.bucket != bucket:
                raise WatersmeetError(
                    f"results of bucket {bucket} of {self.spec.name} belong in bucket {frame.bucket}:"
                    " the query's operators cannot run in one task",
                    hint="this is a fault of Watersmeet; nothing was lost",
                )
            found.append(replace(frame, bucket=bucket))
        return found


def part_of_bucket(branch: str, bucket: int) -> str:
    """Return the name of a bucket as a part of the input that reads its results."""
    return f"{branch}:{bucket}"
