"""What tasks ask Spark and the machine: which batch this is, and the time.  And how soon rows are merged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tests.simulation.actors import task_property
from tests.simulation.decisions import Decisions
from watersmeet.engine import bucket_step
from watersmeet.kernels import lookup
from watersmeet.kernels.aggregate import step as aggregate_step
from watersmeet.kernels.asof import changelog as asof_changelog
from watersmeet.kernels.asof import step as asof_step
from watersmeet.lookup.cache import Clock, LookupCache, cache_of
from watersmeet.runtime import exchange
from watersmeet.state import compaction_plan, working_sets


def cache_of_process(name: str, make: Callable[[], LookupCache], clock: Clock) -> LookupCache:
    """The lookup cache of that name in the process whose task runs."""
    return cache_of(f"{name} of {task_property('process')}", make, clock)


@contextmanager
def as_spark(decisions: Decisions, *, sooner: bool = True) -> Iterator[None]:
    """Let tasks ask their actor what they would ask Spark, and a clock that jumps.

    Few segments are enough to merge, and with ``sooner`` few rows to settle.  Each process has its own lookup caches.
    """
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
        for module in (aggregate_step, asof_step, asof_changelog) if sooner else ():
            patch.setattr(module, "MIN_SETTLED", 3)
        patch.setattr(lookup, "cache_of", cache_of_process)
        yield
