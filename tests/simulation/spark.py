"""What tasks ask Spark and the machine: which batch this is, and the time.  And segments that are merged two by two."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tests.simulation.actors import task_property
from tests.simulation.decisions import Decisions
from watersmeet.engine import bucket_step
from watersmeet.runtime import exchange
from watersmeet.state import compaction_plan, working_sets


@contextmanager
def as_spark(decisions: Decisions) -> Iterator[None]:
    """Let tasks ask their actor what they would ask Spark, and a clock that jumps; few segments are enough to merge."""
    now = 0.0

    def monotonic() -> float:
        nonlocal now
        now += decisions.one_of([0.0, 0.001, 1.0]) if decisions.happens(0.99) else 1e6
        return now

    clock = SimpleNamespace(monotonic=monotonic)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "_task_property", task_property)
        patch.setattr(bucket_step, "time", clock)
        patch.setattr(working_sets, "time", clock)
        patch.setattr(compaction_plan, "FAN_IN", 2)
        yield
