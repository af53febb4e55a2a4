"""The first batch of a new version: all that the old one has taken.  Its results are made, and not written."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from watersmeet.errors import CheckpointError
from watersmeet.runtime.dataflow import build
from watersmeet.runtime.exchange import BATCHES_BEFORE
from watersmeet.runtime.job import Job
from watersmeet.runtime.masters import workers_are_here
from watersmeet.runtime.memory_setting import memory_setting
from watersmeet.runtime.plan_file import PlanFile
from watersmeet.runtime.source_frames import Source
from watersmeet.runtime.storage import Storage
from watersmeet.runtime.task_frames import Resources


def run_planned(spark: SparkSession, job: Job, sources: Mapping[str, Source], plan: PlanFile) -> None:
    """Run the batch that is planned in the checkpoint of Spark that ``plan`` names.

    Rows are quarantined and late as in any batch; what was kept of them the old version has kept.

    Raises ``CheckpointError`` if the batch was not committed.
    """
    checkpoint, settings = job.checkpoint, job.plan.query.settings
    is_reached = workers_are_here(spark) or Storage(spark).worker_path(checkpoint.folder) is not None
    resources = Resources(
        memory=memory_setting(spark, job.plan.query, len(plan.buckets)),
        side_folder=None,
        hot_key_folder=checkpoint.hot_keys if is_reached or settings.skew is not None else None,
        size_folder=checkpoint.sizes if is_reached else None,
    )
    control = spark.readStream.text(checkpoint.control)
    flow = build(spark, job.plan, sources, plan.buckets, resources, control, job.frontier_lag, tasks=plan.tasks)
    context = spark.sparkContext
    context.setLocalProperty(BATCHES_BEFORE, str(plan.batches_before))
    try:
        writer = flow.frame.writeStream.option("checkpointLocation", checkpoint.spark(plan)).foreachBatch(_discard)
        # one batch: what has come since is for the query itself
        writer.trigger(once=True).start().awaitTermination()
    finally:
        context.setLocalProperty(BATCHES_BEFORE, None)  # type: ignore[arg-type]  # PySpark's way to remove it
        shutil.rmtree(flow.folder, ignore_errors=True)
    if not checkpoint.has_batches(plan):
        raise CheckpointError(
            f"the new version of {job.name} has not taken what the old one had: nothing was changed",
            hint="please report this",
        )


def _discard(frame: DataFrame, batch: int) -> None:
    """Compute the results, which the old version has written as its own."""
    del batch
    frame.write.format("noop").mode("overwrite").save()
