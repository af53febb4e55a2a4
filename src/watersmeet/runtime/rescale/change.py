"""What changes when a query gets another number of buckets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from watersmeet.engine.conversion import Conversion
from watersmeet.engine.hashing import can_hash
from watersmeet.engine.hot_keys import HotKeys
from watersmeet.engine.rescale import new_manifests, stays
from watersmeet.engine.specs import OperatorSpec
from watersmeet.errors import CheckpointError, UnsupportedError
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.plan.task_specs import Task
from watersmeet.runtime.buckets import new_buckets
from watersmeet.runtime.dataflow import specs_of
from watersmeet.runtime.plan_file import RESCALED_VERSION, PlanFile, describe
from watersmeet.runtime.source_frames import Source
from watersmeet.state.manifest import Manifest


@dataclass(frozen=True, slots=True)
class OperatorChange:
    """What changes of an operator: how many buckets it has before and after, and how much state is divided.

    ``why`` says why its buckets stay as they are (empty: they do not).
    """

    name: str
    before: int
    after: int
    rows: int
    nbytes: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class OperatorDivision:
    """An operator before and after, and the manifests of its buckets, in their order; ``hot_keys`` are those before.

    With a ``conversion``, rows become those of a query that was changed.
    """

    before: OperatorSpec
    after: OperatorSpec
    manifests: Sequence[Manifest]
    new_manifests: Sequence[Manifest]
    hot_keys: HotKeys
    conversion: Conversion | None = None

    def described(self) -> OperatorChange:
        """What changes, for people."""
        segments = [segment for manifest in self.manifests for segment in manifest.segments]
        return OperatorChange(
            self.before.name,
            len(self.before.buckets),
            len(self.after.buckets),
            sum(segment.rows for segment in segments),
            sum(segment.nbytes for segment in segments),
            self._why() if stays(self.before) else "",
        )

    def _why(self) -> str:
        return "one bucket: no key" if len(self.before.buckets) == 1 else "its totals have no key"


@dataclass(frozen=True, slots=True)
class Change:
    """A query's plan file before and after, its operators, and the tasks in which they will run."""

    stored: PlanFile
    plan: PlanFile
    before: Sequence[OperatorSpec]
    after: Sequence[OperatorSpec]
    tasks: Sequence[Task]
    conversions: Mapping[str, Conversion] = field(default_factory=dict)  # of operators that were changed, by name

    def divisions(
        self, manifests: Mapping[str, Mapping[int, Manifest]], hot_keys: Mapping[str, HotKeys]
    ) -> list[OperatorDivision]:
        """The operators with the manifests of their buckets, by name and bucket.

        Raises ``CheckpointError`` if the state is not complete, or cannot be divided.
        """
        found = []
        for before, after in zip(self.before, self.after, strict=True):
            known = manifests.get(before.name, {})
            if missing := [bucket for bucket in before.buckets if bucket not in known]:
                raise CheckpointError(
                    f"the state of {before.name} lacks {len(missing)} of {len(before.buckets)} buckets",
                    hint="let the query run once, and rescale it then",
                )
            old = [known[bucket] for bucket in before.buckets]
            new = new_manifests(before, after, old)
            conversion = self.conversions.get(before.name)
            found.append(OperatorDivision(before, after, old, new, hot_keys.get(before.name, {}), conversion))
        return found


def change_of(
    spark: SparkSession, physical: PhysicalPlan, sources: Mapping[str, Source], stored: PlanFile, count: int
) -> Change:
    """The change of a query to ``count`` buckets.

    Raises ``UnsupportedError`` for keys of types that cannot be hashed again.
    """
    before, _ = specs_of(spark, physical, sources, stored.buckets, stored.kept_buckets, stored.tasks)
    for spec in before:
        check_keys(spec)
    numbers = new_buckets(spark, count)
    kept = {
        spec.name: new_buckets(spark, len(spec.buckets))
        for operator, spec in zip(physical.operators, before, strict=True)
        if not operator.single_bucket and stays(spec)
    }
    after, joint = specs_of(spark, physical, sources, numbers, kept, stored.tasks)
    plan = stored.model_copy(
        update={
            "version": max(stored.version, RESCALED_VERSION),
            "buckets": numbers,
            "kept_buckets": kept,
            "operators": {spec.name: describe(spec) for spec in after},
            "said_buckets": physical.query.settings.buckets,
            "generation": stored.generation + 1,
        }
    )
    return Change(stored, plan, before, after, joint.tasks)


def check_keys(spec: OperatorSpec) -> None:
    """Raise ``UnsupportedError`` for keys of types that cannot be hashed again."""
    kinds = (part.type for keys in spec.hashed for parts in keys for part in parts)
    if (unknown := next((kind for kind in kinds if not can_hash(kind, slowly=True)), None)) is not None:
        raise UnsupportedError(
            f"{spec.name} has a key of type {unknown}, and only Spark can hash such keys",
            hint="keys of numbers, text, dates, times, booleans and binary values can be divided anew; start on a new "
            "checkpoint instead",
        )
