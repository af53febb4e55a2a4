"""The buckets of a query: those that its checkpoint has, or as many new ones as are wanted."""

from __future__ import annotations

from pyspark.sql import SparkSession

from watersmeet.engine.routing import bucket_numbers
from watersmeet.errors import CheckpointError
from watersmeet.runtime.plan_file import PlanFile


def new_buckets(spark: SparkSession, wanted: int | None) -> tuple[int, ...]:
    """Bucket numbers for a new query: ``wanted`` of them, by default one per shuffle partition."""
    partitions = int(str(spark.conf.get("spark.sql.shuffle.partitions")))
    return bucket_numbers(wanted or partitions, partitions)


def buckets_of(spark: SparkSession, stored: PlanFile | None, wanted: int | None) -> tuple[int, ...]:
    """The buckets of a query whose checkpoint has this plan file (None: a new one).

    Raises ``CheckpointError`` if SETTINGS want another number of buckets than the checkpoint has.
    """
    if stored is None:
        return new_buckets(spark, wanted)
    if wanted not in (None, len(stored.buckets), stored.said_buckets):
        raise CheckpointError(
            f"SETTINGS buckets = {wanted}, but the query's checkpoint has {len(stored.buckets)}",
            hint=f"set buckets = {len(stored.buckets)} or leave it out; or stop the query, and change its checkpoint: "
            f"watersmeet rescale FILE --buckets {wanted}",
        )
    return stored.buckets
