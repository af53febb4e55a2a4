"""A stopped query's change into another one, from its checkpoint's state to the new plan file.

Whatever is written is a new generation of the checkpoint, beside the one in force.  The plan file names the one in
force, so writing it is the switch: before it the old query goes on, after it the new one.  What was broken off is
deleted by the next attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from watersmeet.errors import CheckpointError, ConfigError, UnsupportedError
from watersmeet.plan.replaced_results import complete_after
from watersmeet.plan.replacing import Verdict, Way
from watersmeet.runtime.buckets import buckets_of
from watersmeet.runtime.failures import planning
from watersmeet.runtime.job import Job
from watersmeet.runtime.plan_file import RESCALED_VERSION, PlanFile, describe
from watersmeet.runtime.replace.before import Version, judged, made, version_of
from watersmeet.runtime.replace.counts import Counts, counted
from watersmeet.runtime.replace.sources import source_order
from watersmeet.runtime.replace.warm_up import run_planned
from watersmeet.runtime.rescale.change import Change, check_keys
from watersmeet.runtime.rescale.running import refuse_running
from watersmeet.runtime.rescale.spark_state import SparkState
from watersmeet.runtime.shared_folders import SHARED_OR_STORE, require_shared
from watersmeet.settings.seek import EARLIEST, LATEST, Starts, resolve, seek_text
from watersmeet.state.manifest import Manifest

#: Where a new version begins: where the old one stands, with the first rows there are, or with those of a time on.
STORED, BEGINNING = "stored", "beginning"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Replacement:
    """What is wanted of a change: where a new version begins (None: none is wanted).

    It ``forces`` one where the query could go on with its state too.
    """

    start: str | None = None
    forces: bool = False
    accepts_counts: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Replaced:
    """What was done to a query, or would be done.

    ``complete_after`` is the event time of ``plan.replacing``, if there is state from before; ``counts`` compares a new
    version with the old one.
    """

    query: str
    checkpoint: str
    verdict: Verdict
    complete_after: int | None = None
    scale: int | None = None
    is_new_version: bool = False
    counts: Counts | None = None


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a change is made of."""

    spark: SparkSession
    job: Job
    stored: PlanFile
    before: Version | None
    after: Version
    verdict: Verdict

    def change(self, **updates: object) -> Change:
        """The change of the checkpoint; ``updates`` are of the plan file."""
        plan = self.stored.model_copy(
            update={
                "version": max(self.stored.version, RESCALED_VERSION),
                "operators": {spec.name: describe(spec) for spec in self.after.operators},
                "generation": self.stored.generation + 1,
                "tasks": self.after.joint,
                **updates,
            }
        )
        before = self.before.operators if self.before is not None else ()
        return Change(self.stored, plan, before, self.after.operators, self.after.tasks, self.verdict.conversions)


def replace_query(
    spark: SparkSession, job: Job, old: Callable[[], tuple[Version, ...]], wanted: Replacement
) -> Replaced:
    """Let a stopped query go on as another one; ``old`` gives the one before, over the plan file's buckets, if known.

    Raises ``CheckpointError`` if there is no state, if it is damaged or in use, and where a new version is needed that
    was not asked for.
    """
    checkpoint = job.checkpoint
    stored = checkpoint.read_plan()
    assert stored is not None  # the caller has read it
    checkpoint.refuse_sealed(stored)
    refuse_running(spark, checkpoint.spark(stored), job.name)
    require_shared(spark, checkpoint.folder, "the checkpoint", SHARED_OR_STORE)
    settings = job.plan.query.settings
    if settings.mode != stored.mode:
        raise CheckpointError(
            f"{checkpoint.folder} was made with mode = '{stored.mode}', and the query now has '{settings.mode}'",
            hint="state is kept elsewhere in the other mode: start the query under another name",
        )
    buckets_of(spark, stored, settings.buckets)  # raises where SETTINGS want others
    with planning(job.name):
        starts = None if settings.is_real_time else Starts(stored.starts, has_read=checkpoint.has_batches(stored))
        sources = job.open_sources(spark, False, stored.seek, starts)
        after = version_of(spark, job.plan, sources, stored)
        before = next((each for each in old() if made(each, stored)), None)
        verdict = judged(before, after, stored)
        parts = _Parts(spark, job, stored, before, after, verdict)
        if verdict.way is Way.ANEW or (wanted.start is not None and wanted.forces):
            return _anew(parts, wanted)
        return _as_it_is(parts, wanted) if verdict.way is Way.AS_IT_IS else _changed(parts, wanted)


def _as_it_is(parts: _Parts, wanted: Replacement) -> Replaced:
    job, stored, verdict = parts.job, parts.stored, parts.verdict
    if not wanted.dry_run and job.said is not None:
        job.checkpoint.write_said(stored.generation, job.said)
    after, scale = None, None
    if verdict.mixes and parts.before is not None and not job.plan.query.settings.is_real_time:
        state = SparkState(parts.spark, job.checkpoint, job.plan, parts.change())
        after, scale = _completeness(parts, state.manifests())
    return Replaced(job.name, job.checkpoint.folder, verdict, after, scale)


def _changed(parts: _Parts, wanted: Replacement) -> Replaced:
    job = parts.job
    assert parts.before is not None  # else the verdict would be another
    _refuse_real_time(job)
    for spec in parts.before.operators:
        check_keys(spec)
    change = parts.change()
    state = SparkState(parts.spark, job.checkpoint, job.plan, change)
    manifests = state.manifests()
    after, scale = _completeness(parts, manifests)
    divisions = change.divisions(manifests, state.hot_keys(manifests))
    if not wanted.dry_run:
        job.checkpoint.remove_newer_generations(parts.stored)
        _switch(parts, state, state.write(divisions))
    return Replaced(job.name, job.checkpoint.folder, parts.verdict, after, scale)


def _anew(parts: _Parts, wanted: Replacement) -> Replaced:
    job, verdict = parts.job, parts.verdict
    _refuse_real_time(job)
    result = Replaced(job.name, job.checkpoint.folder, verdict, is_new_version=True)
    if wanted.dry_run:
        return result
    if wanted.start is None:
        raise CheckpointError(
            f"{job.name} needs a new version: it cannot go on with its state",
            detail="\n".join(f"{each.name}: {each.why}" for each in verdict.operators if each.why),
            hint="choose where it begins: --from stored (with empty state, where the old one stands); --from beginning"
            " or --from 'TIME' (it reads what sources still have, and its results begin where the old ones end)",
        )
    if parts.before is None:
        raise CheckpointError(
            f"what {job.name} said before is not known, so its sources cannot be told apart in its checkpoint",
            hint="run the old job once with this version (watersmeet run OLD.sql --drain), which notes it; or start on"
            " a new checkpoint",
        )
    order = source_order(parts.before.plan, parts.before.tasks, parts.after.plan, parts.after.tasks)
    job.checkpoint.remove_newer_generations(parts.stored)
    fresh: dict[str, object] = {"kept_buckets": {}}
    if wanted.start == STORED:
        state = SparkState(parts.spark, job.checkpoint, job.plan, parts.change(**fresh))
        _switch(parts, state, state.write_empty(order))
        return result
    _refuse_bare_changelog(job)
    seek = resolve(parts.spark, None if wanted.start == BEGINNING else wanted.start)
    starts = Starts(None)
    sources = job.open_sources(parts.spark, False, seek, starts)
    change = parts.change(**fresh, seek=seek, starts=starts.found)
    state = SparkState(parts.spark, job.checkpoint, job.plan, change)
    old = state.manifests()
    plan = state.write_planned(order)
    run_planned(parts.spark, job, sources, plan)
    read = SparkState(parts.spark, job.checkpoint, job.plan, replace(change, stored=plan, before=change.after))
    counts = counted(parts.before.operators, old, parts.after.operators, read.manifests())
    if wanted.start == BEGINNING and counts.rows_differ and not wanted.accepts_counts:
        job.checkpoint.remove_newer_generations(parts.stored)
        raise CheckpointError(
            f"the new version of {job.name} has not read as many rows as the old one: nothing was changed",
            detail="\n".join(counts.lines()),
            hint="the sources may have forgotten rows, or the old query began later; --accept-counts replaces it"
            " nevertheless",
        )
    state.plan_next(order)
    _switch(parts, state, plan)
    return Replaced(job.name, job.checkpoint.folder, verdict, is_new_version=True, counts=counts)


def _refuse_real_time(job: Job) -> None:
    if job.plan.query.settings.is_real_time:
        raise UnsupportedError(
            f"{job.name} runs in real time, where only a query that goes on as it is can be replaced",
            hint="start it under another name, on topics of its own, and stop the old one when it has caught up",
        )


def _refuse_bare_changelog(job: Job) -> None:
    """A reader that adds up changes would miss what the new version has emitted before the switch."""
    bare = [
        each.target
        for each, query in zip(job.outputs, job.plan.queries, strict=True)
        if query.weighted and not each.is_keyed
    ]
    if bare:
        raise UnsupportedError(
            f"{bare[0]} takes every change of {job.name}: the new version would take back rows that it has not written",
            hint="--from stored; or write to a stream of its own, from the beginning; or to one with a PRIMARY KEY",
        )


def _completeness(parts: _Parts, manifests: Mapping[str, Mapping[int, Manifest]]) -> tuple[int | None, int | None]:
    """Since which event time results are as if the query had always been as it is, and the unit of that time."""
    assert parts.before is not None  # there is nothing to compare with otherwise
    old, new = parts.before.operators, parts.after.operators
    firsts = [manifests[spec.name][spec.buckets[0]] for spec in old if spec.buckets[0] in manifests.get(spec.name, {})]
    newest = [time for each in firsts for time in each.newest.values()]
    if len(firsts) < len(old) or not newest:
        return None, None
    after = complete_after(parts.verdict, old, new, [each.frontier for each in firsts], max(newest))
    return after, new[0].inputs[0].scale


def _switch(parts: _Parts, state: SparkState, plan: PlanFile) -> None:
    job, checkpoint = parts.job, parts.job.checkpoint
    if not state.is_unchanged():
        raise _runs(job)
    if job.said is not None:
        checkpoint.write_said(plan.generation, job.said)
    checkpoint.write_plan(plan)
    # as in rescale/switch.py: a query that has begun a batch meanwhile has not read the plan file
    if not state.is_unchanged():
        checkpoint.write_plan(parts.stored)
        raise _runs(job)
    _log.info("%s was replaced", job.name)


def _runs(job: Job) -> CheckpointError:
    return CheckpointError(
        f"{job.name} is running: it has taken a batch meanwhile, and goes on as it was",
        hint="stop it, wherever it runs, and replace it then",
    )


def check_start(start: str | None) -> None:
    """Raise ``ConfigError`` for what is neither a word for where to begin nor a time."""
    if start is None or start in (STORED, BEGINNING):
        return
    try:
        if seek_text(start) not in (EARLIEST, LATEST):
            return
    except ValueError:
        pass
    raise ConfigError(f"--from {start}", hint="write stored, beginning, or a time such as '2026-01-01 00:00:00+00:00'")
