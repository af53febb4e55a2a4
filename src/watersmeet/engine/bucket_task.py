"""One bucket's steps of all operators of a task: each one's results go to those behind it without leaving the task.

    frames ─┬─ operator ─ unpack, SELECT list, pack ─┬─ operator ─ frames
            └─ operator ─ unpack, SELECT list, pack ─┘

Between two operators, results are packed as for any other bucket, and must all be for this one: the planner has chosen
routes that say so (plan/co_location.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from watersmeet.engine.bucket_step import OpenBucket
from watersmeet.engine.frames import Frame, FrameKind, unbundled
from watersmeet.engine.mail import Mail
from watersmeet.engine.outbox import forwarded
from watersmeet.engine.pack import Packer
from watersmeet.engine.results import Reader, ResultProjection, packed_results
from watersmeet.engine.specs import OperatorSpec, PackSpec
from watersmeet.errors import WatersmeetError


@dataclass(frozen=True, slots=True)
class Reading:
    """How the results of an operator become rows of an input of another one of its task."""

    projection: ResultProjection
    packing: PackSpec


@dataclass(frozen=True, slots=True)
class Member:
    """An operator of a task; ``first`` is the number of its first input among those of all members.

    ``readings``: the inputs of later members that read its results as a query's.
    """

    spec: OperatorSpec
    first: int = 0
    readings: tuple[Reading, ...] = ()


def run_task(
    members: Sequence[Member], bucket: int, frames: Iterable[Frame], open_bucket: Callable[[OperatorSpec], OpenBucket]
) -> Iterator[Frame]:
    """Take one batch of one bucket and yield the frames that the last member sends on.

    ``frames`` name inputs by their numbers in the task.  Each member's state is written; for errors see ``OpenBucket``.
    """
    last = members[-1]
    if len(members) == 1:
        yield from open_bucket(last.spec).run(frames)
        return
    post = _Post(members, bucket)
    yield from post.deliver(frames)
    for member, mail in zip(members, post.mail, strict=True):
        sent = open_bucket(member.spec).run(mail.take())
        if member is last:
            yield from sent
        else:
            yield from post.deliver(_packed(member, bucket, sent) if member.readings else sent)


def _packed(member: Member, bucket: int, sent: Iterable[Frame]) -> Iterator[Frame]:
    """Yield results as frames for the members that read them."""
    readers = [Reader(each.projection, Packer(each.packing.kept_in(bucket), here=bucket)) for each in member.readings]
    yield from packed_results(sent, readers, (bucket,))
    for reader in readers:
        yield from reader.packer.finish()


class _Post:
    """What waits for each member."""

    def __init__(self, members: Sequence[Member], bucket: int) -> None:
        self._members, self._bucket = members, bucket
        self._firsts = [member.first for member in members]
        self._names = {member.spec.name for member in members}
        self.mail = [Mail() for _ in members]

    def deliver(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        """Leave frames for the members that they name; yield those that only pass, addressed to who comes next."""
        for frame in frames:
            match frame.kind:
                case FrameKind.BUNDLE if frame.part in self._names:
                    yield from self.deliver(unbundled(frame))
                case FrameKind.SIDE | FrameKind.COUNTER | FrameKind.BUNDLE:
                    yield from forwarded(self._members[-1].spec, self._bucket, [frame])
                case FrameKind.CONTROL:
                    for mail in self.mail:
                        mail.put(frame)
                case _:
                    self._put(frame)

    def _put(self, frame: Frame) -> None:
        place = bisect_right(self._firsts, frame.input) - 1
        if frame.bucket != self._bucket:
            raise WatersmeetError(
                f"rows of bucket {self._bucket} of {self._members[place].spec.name} belong in bucket {frame.bucket}:"
                " the query's operators cannot run in one task",
                hint="this is a fault of Watersmeet; nothing was lost",
            )
        self.mail[place].put(replace(frame, input=frame.input - self._firsts[place]))
