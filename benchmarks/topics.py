"""Kafka topics with the rows of a workload's streams, which all engines read.

    python -m benchmarks.topics WORKLOAD ROWS FOLDER --broker ADDRESS --jars JARS

Creates and fills the topics of a workload from its Parquet files.  Each topic has two partitions, in which records have
the order of the files.  A row's partition is that of its key if rows of its stream replace each other, else of its
number.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.workloads import WORKLOADS, Workload
from tests.support import spark_jars
from tests.support.kafka_broker import Broker

PARTITIONS = 2
_AVRO_TYPES = {
    "BIGINT": "long",
    "DOUBLE": "double",
    "TIMESTAMP": {"type": "long", "logicalType": "timestamp-micros"},
}
_SETTINGS = {"spark.driver.memory": "2g", "spark.sql.session.timeZone": "UTC", "spark.ui.enabled": "false"}
#: Large batches of records, so that the producer's timing does not decide how long a reader takes.
_PRODUCER = {"kafka.batch.size": "262144", "kafka.linger.ms": "100"}


class NoJarsError(Exception):
    """A Spark package that reads the topics is not available, nor is a stand-in for it."""


@dataclass(frozen=True, slots=True)
class Kafka:
    """The address of a broker, and the jars with which Spark uses it."""

    address: str
    jars: tuple[str, ...]

    @property
    def arguments(self) -> list[str]:
        """Return these as options of a command line that has those of ``add_arguments``."""
        return [f"--broker={self.address}", f"--jars={','.join(self.jars)}"]


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """Add the options from which ``kafka_of`` makes a ``Kafka``."""
    arguments.add_argument("--broker", metavar="ADDRESS", help="the broker of a workload over Kafka")
    arguments.add_argument("--jars", default="", help="the jars with which Spark reads from it")


def kafka_of(options: argparse.Namespace) -> Kafka | None:
    """Return the broker that the command line names; None if it names none."""
    return Kafka(options.broker, tuple(options.jars.split(","))) if options.broker else None


def jars(workload: Workload) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the jars with which Spark reads the topics of a workload, and a sentence for each stand-in among them.

    Raises ``NoJarsError`` if there are none.
    """
    packages = ("kafka", *(["avro"] if workload.records == "avro" else []))
    found = [spark_jars.package_jars(name) for name in packages]
    notes = tuple(spark_jars.notes[name] for name in packages if name in spark_jars.notes)
    if not all(found):
        raise NoJarsError("; ".join(notes))
    return tuple(dict.fromkeys(jar for each in found for jar in each)), notes


def topic(workload: Workload, side: str) -> str:
    """Return the name of a side's topic."""
    return f"{workload.name}-{side}"


def avro_schema(workload: Workload, side: str) -> str:
    """Return the Avro schema of a side's records as JSON."""
    columns = [column.split() for column in workload.data.columns(side).split(", ")]
    fields = [{"name": name, "type": _AVRO_TYPES[type_]} for name, type_ in columns]
    return json.dumps({"type": "record", "name": side, "fields": fields})


def stream_options(workload: Workload, side: str, kafka: Kafka) -> dict[str, str]:
    """Return the WITH options of the stream over a side's topic; a batch has as many records as a Parquet file."""
    options = {
        "connector": "kafka",
        "topic": topic(workload, side),
        "brokers": kafka.address,
        "format": workload.records,
        "max_offsets_per_trigger": str(workload.data.rows // workload.data.files),
    }
    return {**options, "avro.schema": avro_schema(workload, side)} if workload.records == "avro" else options


def read_with_spark(spark: Any, workload: Workload, side: str, kafka: Kafka) -> Any:
    """Return a side's rows as a streaming DataFrame of Spark's own Kafka source."""
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    options = {
        "kafka.bootstrap.servers": kafka.address,
        "subscribe": topic(workload, side),
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(workload.data.rows // workload.data.files),
    }
    records = spark.readStream.format("kafka").options(**options).load()
    if workload.records == "avro":
        row = from_avro(F.col("value"), avro_schema(workload, side))
    else:
        row = F.from_json(F.col("value").cast("string"), workload.data.columns(side))
    return records.select(row.alias("row")).select("row.*")


def fill(spark: Any, workload: Workload, folder: Path, kafka: Kafka) -> None:
    """Create the topics of all sides, and write the rows of the Parquet files to them."""
    broker = Broker(kafka.address)
    for side in workload.data.sides:
        broker.create_topic(spark, topic(workload, side), PARTITIONS)
        records = _records(spark.read.parquet(str(folder / side)), workload, side)
        options = {"kafka.bootstrap.servers": kafka.address, "topic": topic(workload, side), **_PRODUCER}
        records.write.format("kafka").options(**options).save()


def _records(rows: Any, workload: Workload, side: str) -> Any:
    """Return rows as records: ``key``, ``value`` and ``partition``, in the order of a partition."""
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import to_avro

    keyed = side in workload.primary_keys
    row = F.struct(*rows.columns)
    if workload.records == "avro":
        value = to_avro(row, avro_schema(workload, side))
    else:
        value = F.to_json(row, {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"})
    records = rows.select(
        F.col(f"{side}_id").alias("number"),
        (F.col(f"{side}_key").cast("string") if keyed else F.lit(None).cast("string")).alias("key"),
        value.alias("value"),
        (F.col(f"{side}_key" if keyed else f"{side}_id") % PARTITIONS).cast("int").alias("partition"),
    )
    return records.repartitionById(PARTITIONS, "partition").sortWithinPartitions("number").drop("number")


def main() -> None:
    """Fill the topics of the workload that the arguments name."""
    from pyspark.sql import SparkSession

    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("workload")
    arguments.add_argument("rows", type=int)
    arguments.add_argument("folder", type=Path)
    add_arguments(arguments)
    options = arguments.parse_args()
    kafka = kafka_of(options)
    if kafka is None:
        arguments.error("--broker is missing")
    builder = SparkSession.builder.master(f"local[{PARTITIONS}]")
    for name, value in {**_SETTINGS, "spark.jars": ",".join(kafka.jars)}.items():
        builder = builder.config(name, value)
    fill(builder.getOrCreate(), WORKLOADS[options.workload].of_rows(options.rows), options.folder, kafka)


if __name__ == "__main__":
    main()
