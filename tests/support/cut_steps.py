"""Operators that do not keep step: the first ones take rows one by one, and the others all that these sent at once.

So an operator gets, in one step, rows and their retractions, as it does in real time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from watersmeet.engine.frames import Frame, FrameKind, decode_table, row_frames
from watersmeet.engine.specs import OperatorSpec
from watersmeet.kernels.asof.at_once import AsofAtOnce
from watersmeet.plan.task_specs import Task
from watersmeet.testing.harness import Harness


class CutHarness(Harness):
    """A query whose first operators take a step for each row."""

    shares_tasks = False

    def _operate(self, task: Task, arriving: Iterable[Frame]) -> list[Frame]:
        (member,) = task.members
        by_bucket: dict[int, list[Frame]] = defaultdict(list)
        for frame in arriving:
            by_bucket[frame.bucket].append(frame)
        sent: list[Frame] = []
        for _, frames in sorted(by_bucket.items()):
            *earlier, last = cut(member.spec, frames) if member.spec.downstream is not None else [frames]
            for step in earlier:  # counters are reported once
                sent += [frame for frame in super()._operate(task, step) if frame.kind is not FrameKind.COUNTER]
            sent += super()._operate(task, last)
        return sent


def cut(spec: OperatorSpec, frames: Iterable[Frame]) -> list[list[Frame]]:
    """The frames of one step of a bucket as those of several, if its operator is one of the first.

    A join with the versions known now stays as it is: its results follow from what arrives together.
    """
    is_first = all(input.source is not None and not input.is_of_results for input in spec.inputs)
    if not is_first or isinstance(spec.kernel, AsofAtOnce):
        return [list(frames)]
    steps: list[list[Frame]] = []
    others = []
    for frame in frames:
        if frame.kind is FrameKind.ROWS:
            steps += _rows_of(frame)
        else:
            others.append(frame)
    return [*steps, others]


def _rows_of(frame: Frame) -> Iterator[list[Frame]]:
    rows = decode_table(frame.payload)
    for at in range(rows.num_rows):
        yield list(row_frames(rows.slice(at, 1), bucket=frame.bucket, input=frame.input))
