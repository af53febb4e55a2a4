"""A stopped query's change to another number of buckets, from its checkpoint's state to the new plan file."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import SparkSession

from watersmeet.engine.hot_keys import HotKeys
from watersmeet.errors import CheckpointError, ConfigError
from watersmeet.runtime.failures import planning
from watersmeet.runtime.job import Job
from watersmeet.runtime.plan_file import PlanFile
from watersmeet.runtime.rescale.change import Change, OperatorChange, OperatorDivision, change_of
from watersmeet.runtime.rescale.epoch_state import EpochState
from watersmeet.runtime.rescale.running import refuse_running
from watersmeet.runtime.rescale.spark_state import SparkState
from watersmeet.runtime.shared_folders import SHARED_OR_STORE, require_shared
from watersmeet.settings.seek import Starts
from watersmeet.state.manifest import Manifest

MOST_BUCKETS = 4096
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rescaled:
    """What was done to a query, or would be done: its buckets before and after, and those of each operator."""

    query: str
    checkpoint: str
    before: int
    after: int
    operators: Sequence[OperatorChange]


class _State(Protocol):
    """The state of a query in one mode."""

    def manifests(self) -> Mapping[str, Mapping[int, Manifest]]: ...

    def hot_keys(self, manifests: Mapping[str, Mapping[int, Manifest]]) -> Mapping[str, HotKeys]: ...

    def is_unchanged(self) -> bool: ...

    def write(self, divisions: Sequence[OperatorDivision]) -> PlanFile: ...


def check_count(buckets: int) -> None:
    """Raise ``ConfigError`` for a number of buckets that no query may have."""
    if not 1 <= buckets <= MOST_BUCKETS:
        raise ConfigError(f"a query cannot have {buckets} buckets", hint=f"choose 1 to {MOST_BUCKETS}")


def rescale_query(spark: SparkSession, job: Job, buckets: int, *, dry_run: bool = False) -> Rescaled:
    """Give a stopped query another number of buckets; with ``dry_run``, only say what would change.

    Until the plan file is written, everything is as before, and a change that was broken off begins anew.  The state of
    before is deleted when the query has committed a batch with the new buckets.

    Raises ``CheckpointError`` if there is no state, if it belongs to another query or version, or if the query runs.
    """
    check_count(buckets)
    checkpoint = job.checkpoint
    stored = checkpoint.read_plan()
    if stored is None:
        raise CheckpointError(
            f"{job.name} has no checkpoint {checkpoint.folder}",
            hint="name the workspace, or the folder of checkpoints, that it ran with",
        )
    checkpoint.refuse_sealed(stored)
    refuse_running(spark, checkpoint.spark(stored), job.name)
    require_shared(spark, checkpoint.folder, "the checkpoint", SHARED_OR_STORE)
    settings = job.plan.query.settings
    with planning(job.name):
        starts = None if settings.is_real_time else Starts(stored.starts, has_read=checkpoint.has_batches(stored))
        sources = job.open_sources(spark, False, stored.seek, starts)
        change = change_of(spark, job.plan, sources, stored, buckets)
        checkpoint.accept(stored, stored.buckets, change.before, mode=settings.mode)
        state: _State
        if settings.is_real_time:
            state = EpochState(spark, checkpoint, job.plan, change)
        else:
            state = SparkState(spark, checkpoint, job.plan, change)
        manifests = state.manifests()
        divisions = change.divisions(manifests, state.hot_keys(manifests))
        found = [each.described() for each in divisions]
        result = Rescaled(job.name, checkpoint.folder, len(stored.buckets), buckets, found)
        if not dry_run and buckets != len(stored.buckets):
            _switch(job, change, state, divisions)
    return result


def _switch(job: Job, change: Change, state: _State, divisions: Sequence[OperatorDivision]) -> None:
    checkpoint, stored = job.checkpoint, change.stored
    checkpoint.remove_newer_generations(stored)
    plan = state.write(divisions)
    if not state.is_unchanged():
        raise _runs(job)
    checkpoint.write_plan(plan)
    # the plan file stops a query that runs at its next batch; one that has begun a batch meanwhile has not read it
    if not state.is_unchanged():
        checkpoint.write_plan(stored)
        raise _runs(job)
    _log.info("%s: %s buckets, before %s", job.name, len(plan.buckets), len(stored.buckets))


def _runs(job: Job) -> CheckpointError:
    return CheckpointError(
        f"{job.name} is running: it has taken a batch meanwhile, and its buckets stay as they are",
        hint="stop it, wherever it runs, and rescale it then",
    )
