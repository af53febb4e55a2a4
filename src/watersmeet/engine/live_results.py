"""What a bucket sends on in real time: frames by the operator that takes them.

An operator's results go to the next one as they are, or become the rows of inputs of others (plan/nesting.py).  In
micro-batches a task of its own packs them, when all buckets have ended their step.  Here each bucket does so for
itself, step by step, and is a part of the input with a frontier of its own.  Where only Spark can compute these rows,
the bucket sends results as they are, and a task behind Spark's projection packs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from watersmeet.columns import WEIGHT
from watersmeet.engine.bucket_step import OpenBucket
from watersmeet.engine.frames import Frame, FrameKind, passed_on, row_frames
from watersmeet.engine.outbox import Outbox
from watersmeet.engine.pack import Packer
from watersmeet.engine.results import ResultProjection, rows_of_input
from watersmeet.engine.specs import OperatorSpec, PackSpec
from watersmeet.errors import WatersmeetError
from watersmeet.kernels.api import NEVER, shift


@dataclass(frozen=True, slots=True)
class LiveReading:
    """How results become rows of an input of ``operator``, a number in the query."""

    operator: int
    projection: ResultProjection
    packing: PackSpec


@dataclass(frozen=True, slots=True)
class SparkReading:
    """How results become rows of an input of ``operator`` where only Spark can compute these.

    ``input`` is the input's number in the query, ``branch`` the one of its branches that the results are those of, and
    ``lag`` how far event times lie behind the branch's frontiers.
    """

    operator: int
    input: int
    branch: int
    lag: int
    packing: PackSpec

    def asked(self, bucket: int, rows: pa.Table | None, frontier: int) -> Iterator[Frame]:
        """Yield the results of a bucket for Spark, and their end with the bucket's frontier."""
        if rows is not None:
            for frame in row_frames(rows, bucket=bucket, input=self.input, kind=FrameKind.RESULTS):
                yield replace(frame, part=str(self.branch))
        yield Frame(bucket, self.input, str(self.branch), FrameKind.RESULTS, frontier, b"")

    def takes(self, frame: Frame) -> bool:
        """Whether a frame is one of those that ``asked`` yields."""
        return frame.kind is FrameKind.RESULTS and (frame.input, frame.part) == (self.input, str(self.branch))

    def packed(self, rows: pa.Table | None, end: Frame) -> Iterator[Frame]:
        """Yield the rows that Spark has computed as frames of the input; ``end`` is that of what was asked."""
        packer = Packer(self.packing)
        if rows is not None:
            yield from packer.pack(rows)
        packer.observe(part_of_bucket(end.part, end.bucket), shift(end.frontier, -self.lag))
        yield from packer.finish()


@dataclass(frozen=True, slots=True)
class LiveOperator:
    """An operator, and where its results go.

    ``sends_to`` is the operator that takes them as they are, ``readings`` are the inputs that they are rows of, and
    ``by_spark`` those whose rows Spark computes; the last operator of a query has none of these.  ``beside`` are the
    operators whose buckets are in the same task as its own.
    """

    spec: OperatorSpec
    sends_to: int | None = None
    readings: tuple[LiveReading, ...] = ()
    by_spark: tuple[SparkReading, ...] = ()
    beside: frozenset[int] = frozenset()

    @property
    def is_last(self) -> bool:
        """Whether the results are those of the query."""
        return self.sends_to is None and not self.readings and not self.by_spark

    @property
    def streams_results(self) -> bool:
        """Whether results go on as they are made; others may cancel out within a step, or are read with a frontier."""
        return self.is_last and not any(WEIGHT in rows.names for rows in self.spec.outputs)

    def step(self, bucket: OpenBucket, frames: Iterable[Frame]) -> Iterator[Outbox]:
        """Take frames; yield what a bucket sends on: streamed results, or all together and then its frontier."""
        if self.streams_results:
            yield from bucket.outboxes(frames)
        else:
            yield bucket.step(frames).followed_by(bucket.advanced())

    def addressed(self, bucket: int, outbox: Outbox) -> Iterator[tuple[int, list[Frame]]]:
        """Yield the frames for each operator that takes results of a bucket, with the operator's number."""
        if self.sends_to is not None:
            yield self.sends_to, self._kept_here(self.sends_to, bucket, outbox)
        for reading in self.readings:
            yield reading.operator, self._kept_here(reading.operator, bucket, self._read(bucket, outbox, reading))
        readings: tuple[LiveReading | SparkReading, ...] = (*self.readings, *self.by_spark)
        for first in readings[:1]:  # what is no result passes once, whoever reads
            passing = (frame for frame in outbox.others if frame.kind is not FrameKind.MARK)
            frames = (passed_on(frame, first.packing.buckets) for frame in passing)
            yield first.operator, self._kept_here(first.operator, bucket, frames)

    def asked(self, bucket: int, outbox: Outbox) -> Iterator[Frame]:
        """Yield what a bucket sends on for Spark to project."""
        frontiers = [frame.frontier for frame in outbox.others if frame.kind is FrameKind.MARK]
        rows = outbox.results()
        if rows is not None or frontiers:
            for reading in self.by_spark:
                yield from reading.asked(bucket, rows, max(frontiers, default=NEVER))

    def _read(self, bucket: int, outbox: Outbox, reading: LiveReading) -> Iterator[Frame]:
        """Yield results as frames of an input: rows, and frontiers after all of them."""
        packing, projection, here = reading.packing, reading.projection, None
        part = part_of_bucket(projection.part, bucket)
        if reading.operator in self.beside:
            here, part, packing = bucket, projection.part, packing.kept_in(bucket)
        packer = Packer(packing, here=here)
        if (rows := outbox.results()) is not None:
            yield from packer.pack(rows_of_input(rows, projection))
        for frame in outbox.others:
            if frame.kind is FrameKind.MARK:  # also one without a frontier: every bucket hears of every epoch
                packer.observe(part, shift(frame.frontier, -projection.lag))
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
