"""The query that made a checkpoint, beside the one that is to go on with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from watersmeet.engine.specs import OperatorSpec
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.plan.replacing import OperatorVerdict, Verdict, Way, verdict_on
from watersmeet.plan.task_specs import Task
from watersmeet.runtime.dataflow import specs_of
from watersmeet.runtime.plan_file import PlanFile, describe, differences
from watersmeet.runtime.source_frames import Source

_UNKNOWN = (
    "what the query said before is not known: the checkpoint was made by an earlier version, or query.json is lost"
)


@dataclass(frozen=True, slots=True)
class Version:
    """A query over its sources, with its operators and tasks over the buckets of a checkpoint."""

    plan: PhysicalPlan
    operators: Sequence[OperatorSpec]
    tasks: Sequence[Task]
    joint: tuple[tuple[str, ...], ...]


def version_of(spark: SparkSession, plan: PhysicalPlan, sources: Mapping[str, Source], stored: PlanFile) -> Version:
    """A query as it would run on a checkpoint; in the tasks of its plan file, if it has those operators."""
    names = {operator.name for operator in plan.operators}
    fits = names == {*stored.operators}
    kept = stored.kept_buckets if fits else {}
    joint = stored.tasks if fits else None
    operators, tasks = specs_of(spark, plan, sources, stored.buckets, kept, joint)
    return Version(plan, operators, tasks.tasks, tasks.names)


def made(version: Version, stored: PlanFile) -> bool:
    """Whether a query is the one whose state a checkpoint holds."""
    return {spec.name: describe(spec) for spec in version.operators} == stored.operators


def judged(before: Version | None, after: Version, stored: PlanFile) -> Verdict:
    """How a query goes on with a checkpoint; ``before`` is the query that made it, if that is known."""
    if before is not None:
        return verdict_on(before.plan, before.operators, after.plan, after.operators)
    if made(after, stored):
        operators = tuple(OperatorVerdict(spec.name, Way.AS_IT_IS) for spec in after.operators)
        return Verdict(operators, (_UNKNOWN,))
    described = {spec.name: describe(spec) for spec in after.operators}
    found = tuple(differences(stored.operators, described))
    return Verdict((OperatorVerdict("query", Way.ANEW, found, _UNKNOWN),))
