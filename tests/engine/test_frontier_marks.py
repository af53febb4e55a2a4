"""How many marks an operator sends to the next one, and whose frontier they bring."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from watersmeet.engine.bucket_step import OpenBucket
from watersmeet.engine.frames import Frame, FrameKind, counters_in
from watersmeet.plan.task_specs import Task
from watersmeet.state.manifest import EVERY, MANIFEST
from watersmeet.testing.cells import Row
from watersmeet.testing.harness import Harness, StepInput, load_script

BUCKETS = 4
SCRIPT = """
CREATE STREAM a (k INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM b (k INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM c (j INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
SELECT a.k, c.j FROM a LEFT JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + 10
  LEFT JOIN c ON b.ts = c.j AND c.ts BETWEEN a.ts AND a.ts + 10 SETTINGS multi_join = 'off';
"""


class Overheard(Harness):
    """A harness that keeps what operators send; ``separately``: each bucket takes steps of its own, as in real time."""

    def __init__(self, *, separately: bool = False) -> None:
        super().__init__(*load_script(SCRIPT), buckets=BUCKETS)
        self.separately = separately
        self.deaf: int | None = None  # the bucket of the first join that hears no mark
        self.sent: dict[str, list[Frame]] = {}

    def _operate(self, task: Task, arriving: Iterable[Frame]) -> list[Frame]:
        spec = task.members[-1].spec
        if not self.separately:
            sent = super()._operate(task, arriving)
        else:
            frames = list(arriving)
            sent = []
            for bucket in spec.buckets:
                store, working_set = self._stores[spec.name, bucket], self._working_sets.get(spec.name, str(bucket))
                opened = OpenBucket(spec, bucket, store, working_set)
                own = [each for each in frames if each.bucket == bucket]
                if (spec.name, bucket) == ("join_1", self.deaf):
                    own = [each for each in own if each.kind is not FrameKind.MARK]
                sent += [*opened.step(own), *opened.close()]
        self.sent[spec.name] = sent
        return sent

    def marks(self, operator: str) -> list[str]:
        """The parts in the marks for each bucket of the next operator."""
        return sorted(f"{each.part} to {each.bucket}" for each in self.sent[operator] if each.kind is FrameKind.MARK)

    def parts(self, operator: str) -> set[str]:
        """The parts that the buckets of an operator know of the operator before it."""
        return {name for manifest in self._manifests(operator) for name in manifest["parts"]["0"]}

    def frontiers(self, operator: str) -> list[int]:
        """The frontiers at which buckets of an operator stand."""
        return sorted({manifest["frontier"] for manifest in self._manifests(operator)})

    def heard(self) -> int:
        """The reports of input a that all buckets count together."""
        frames = [frame for frame in self.sent["join_2"] if frame.kind is FrameKind.COUNTER]
        return sum(counters_in(frame).get("join_1.heard.a.", 0) for frame in frames)

    def _manifests(self, operator: str) -> list[dict[str, Any]]:
        stores = [store for (name, _), store in self._stores.items() if name == operator]
        assert len(stores) == BUCKETS
        return [json.loads(store.get(MANIFEST) or b"") for store in stores]


def fed(at: int) -> dict[str, StepInput]:
    rows: list[Row] = [(k, at) for k in range(8)]
    return {name: StepInput(rows) for name in "abc"}


def test_the_first_bucket_reports_for_all_while_all_take_the_same_steps() -> None:
    harness = Overheard()
    for step in (1, 2):
        harness.step(fed(20 * step))
        assert harness.marks("join_1") == [f"{EVERY} to {bucket}" for bucket in range(BUCKETS)]
        assert harness.parts("join_2") == {EVERY}
        assert harness.heard() == BUCKETS * step


def test_each_bucket_reports_for_itself_once_they_have_taken_steps_of_their_own() -> None:
    harness = Overheard()
    harness.step(fed(20))
    for harness.separately in (True, False):
        harness.step(fed(40))
        named = [str(bucket) for bucket in range(BUCKETS)]
        assert harness.marks("join_1") == [f"{name} to {bucket}" for name in named for bucket in range(BUCKETS)]
        assert harness.parts("join_2") == set(named)
    assert harness.heard() == BUCKETS * 3


def test_a_bucket_that_is_behind_holds_the_next_operator_back() -> None:
    harness = Overheard(separately=True)
    harness.step(fed(20))
    harness.deaf = 2
    harness.step(fed(40))
    assert harness.frontiers("join_1") == [20_000_000, 40_000_000]
    assert harness.frontiers("join_2") == [10_000_000]  # a row may be padded ten seconds later
    harness.deaf = None
    harness.step(fed(60))
    assert harness.frontiers("join_2") == [50_000_000]
