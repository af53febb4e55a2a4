"""Takes back, from a topic of upserts, what runs in real time wrote of epochs that did not commit.

An epoch that runs again gives the same final rows, but may pass through others on the way: steps are cut anew.  A key
that only the first attempt passed through (the count that a group had for a moment) would keep its row for ever.  So
before a run begins, each key that earlier runs wrote in epochs from the run's first one on gets the row back that it
had when that epoch began.

That row is told by the first such record of the key: a delete has the row that it deletes in the header ``_was``, and a
row that comes without a delete before it was not there.  What is given back has the header too, as its own run may end
as the others did.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from watersmeet.connectors.kafka.options import KafkaOptions, client_options
from watersmeet.runtime.real_time.sinks import RunName

#: How far the clock of a record may be behind that of the checkpoint's file system.
_CLOCKS_SECONDS = 600.0
WAS = "_was"


def take_back(spark: SparkSession, given: KafkaOptions, run: RunName, since: float | None) -> None:
    """Write the committed rows of keys that void epochs have changed.

    ``since`` is the time, in seconds since 1970, after which such epochs began; None: at any time.
    """
    client = client_options(given)
    reader = spark.read.format("kafka").options(**client).option("subscribe", given.topic)
    if since is not None:
        reader = reader.option("startingTimestamp", str(int((since - _CLOCKS_SECONDS) * 1000)))
        reader = reader.option("startingOffsetsByTimestampStrategy", "latest")
    records = reader.option("includeHeaders", "true").load()
    first = run.firsts[run.run]
    is_void = (
        _text("_query").startswith(f"{run.query}-")
        & (_text("_batch").try_cast("bigint") >= first)
        & (_text("_run").try_cast("bigint") < run.run)
    )
    found = records.where(is_void).select("partition", "key", "offset", _header(WAS).alias("was"))
    firsts = found.groupBy("partition", "key").agg(F.min_by(F.struct("was"), "offset")["was"].alias("value"))
    marks = {**headers_of(run, F.lit(str(first))), WAS: F.col("value")}
    written = firsts.select("key", "value", "partition", header_array(marks).alias("headers"))
    written.write.format("kafka").options(**client, topic=given.topic, includeHeaders="true").save()


def headers_of(run: RunName, epoch: Column) -> dict[str, Column]:
    """The headers of what a run gives, by their names; ``epoch`` is a text."""
    return {
        "_batch": epoch,
        "_query": F.concat(F.lit(f"{run.query}-"), F.lpad(epoch, 12, "0")),
        "_run": F.lit(str(run.run)),
        "_runs": F.lit(" ".join(f"{number}:{first}" for number, first in run.firsts.items())),
    }


def header_array(headers: Mapping[str, Column]) -> Column:
    """Kafka's headers, without those that are NULL."""
    marks = [F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value")) for name, value in headers.items()]
    return F.filter(F.array(*marks), lambda mark: mark["value"].isNotNull()) if marks else F.array()


def _header(name: str) -> Column:
    return F.get(F.filter("headers", lambda header: header["key"] == name), F.lit(0))["value"]


def _text(name: str) -> Column:
    return _header(name).cast("string")
