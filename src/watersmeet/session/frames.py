"""A query's results as a streaming DataFrame, and the stream that would hold them."""

from __future__ import annotations

import logging
import uuid

from pyspark.sql import DataFrame

from watersmeet.catalog.streams import StreamDef
from watersmeet.errors import ConfigError
from watersmeet.plan.lineage import derived_stream
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.runtime.buckets import new_buckets
from watersmeet.runtime.dataflow import build
from watersmeet.runtime.failures import planning
from watersmeet.runtime.memory_setting import memory_setting
from watersmeet.runtime.shared_folders import require_written
from watersmeet.runtime.store_folder import Place
from watersmeet.runtime.task_frames import Resources
from watersmeet.session.statement_plans import StatementPlans
from watersmeet.session.streams import Streams
from watersmeet.settings.seek import resolve
from watersmeet.sql.query_names import select_name
from watersmeet.sql.statements import CreateStream, Select

_log = logging.getLogger(__name__)


def select_frame(plans: StatementPlans, folder: Place, select: Select) -> DataFrame:
    """A SELECT as a DataFrame; its late and bad rows go to files in the workspace, a ``folder``, by query and run."""
    physical = plans.plan(select.query)
    if physical.query.settings.is_real_time:
        raise ConfigError(
            "a SELECT in real time cannot be a DataFrame: the query that writes it would not know its epochs",
            hint="INSERT INTO a stream, or session.run(…, real_time=True), which prints the rows",
            position=select.query.settings_positions.get("mode"),
        )
    for setting in ("late_rows", "evicted_rows", "idle_timeout", "trigger", "epoch"):
        if setting in select.query.settings:
            raise ConfigError(
                f"{setting} is a setting of queries that Watersmeet runs, but this one becomes a DataFrame",
                hint="use INSERT INTO or CREATE STREAM … AS, or set the trigger where the DataFrame is written",
                position=select.query.settings_positions.get(setting),
            )
    plans.streams.check_tables(physical)
    name = select_name(select.source)
    side_folder: str | None = f"{folder}/side/{name}-{uuid.uuid4().hex[:8]}"
    # only on request: a restart finds them again, but so does the same SELECT elsewhere in the query
    keeps_log = "skew" in select.query.settings
    try:
        require_written(plans.streams.spark, folder, "the workspace")
    except ConfigError as error:
        if physical.query.settings.skew == "spread":
            raise
        _log.warning("bad rows of %s will be counted, but not kept: %s", name, error.message)
        side_folder, keeps_log = None, False
    return built_frame(plans.streams, physical, side_folder, f"{folder}/hot_keys" if keeps_log else None)


def built_frame(
    streams: Streams, physical: PhysicalPlan, side_folder: str | None = None, hot_key_folder: str | None = None
) -> DataFrame:
    """The results of a query as a streaming DataFrame."""
    spark = streams.spark
    settings = physical.query.settings
    buckets = new_buckets(spark, settings.buckets)
    resources = Resources(memory_setting(spark, physical.query, len(buckets)), side_folder, hot_key_folder)
    with planning("of this statement"):
        sources = streams.sources(physical, limited=True, seek=resolve(spark, settings.seek_to))
        # the frame may become part of a query with other such frames, so its metrics need a name of their own
        label = f"_{uuid.uuid4().hex[:8]}"
        return build(spark, physical, sources, buckets, resources, label=label).frame


def derived(streams: Streams, statement: CreateStream, physical: PhysicalPlan) -> StreamDef:
    """The stream of ``CREATE STREAM … AS``, with the columns of its query's results."""
    columns = [(field.name, field.dataType.simpleString()) for field in built_frame(streams, physical).schema]
    return derived_stream(statement.name, physical.query, columns, statement.source, options=statement.options or None)
