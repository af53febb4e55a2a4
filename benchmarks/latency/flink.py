"""A query as Flink runs it: SQL, and settings for low latency.

Flink may keep a record for 100 ms before it hands it to the next task, and its watermarks are made each 200 ms, unless
it is told otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.flink_kafka import newest
from benchmarks.latency.queries import PARTITIONS, Query


def settings(epoch_seconds: float, jars: Sequence[str]) -> dict[str, str]:
    """Return the settings of a job that takes a checkpoint once an epoch."""
    return {
        "parallelism.default": str(PARTITIONS),
        "pipeline.object-reuse": "true",
        "pipeline.jars": ";".join(jars),
        "pipeline.auto-watermark-interval": "5 ms",
        "execution.buffer-timeout.interval": "1 ms",
        "state.backend.type": "hashmap",
        "execution.checkpointing.interval": f"{round(epoch_seconds * 1000)} ms",
        "restart-strategy.type": "disable",
    }


def statements(query: Query, broker: str, topics: str) -> list[str]:
    """Return the definitions of streams and sink, and the INSERT."""
    found = []
    for side in query.sides:
        columns = (
            f"{side}_id BIGINT NOT NULL, {side}_key BIGINT NOT NULL, {side}_ts BIGINT NOT NULL, "
            f"{side}_time AS TO_TIMESTAMP_LTZ({side}_ts, 3)"
        )
        delay = f"INTERVAL '{query.delay_ms / 1000:.3f}' SECOND"
        options = {**_topic(broker, f"{topics}-{side}"), "format": "json", "scan.startup.mode": "earliest-offset"}
        options["properties.fetch.max.wait.ms"] = "10"
        watermark = f"WATERMARK FOR {side}_time AS {side}_time - {delay}"
        found.append(f"CREATE TABLE {side} ({columns}, {watermark}) WITH ({_listed(options)})")
        found.append(newest(side, f"{side}_time"))
    types = ", ".join(f"{name} BIGINT" for name in query.columns)
    if query.kind.is_upsert:
        options = {"key.format": "json", "value.format": "json"}
        key, connector = ", PRIMARY KEY (l_key) NOT ENFORCED", "upsert-kafka"
    else:
        options, key, connector = {"format": "json"}, "", "kafka"
    options = {**_topic(broker, f"{topics}-o", connector), "properties.linger.ms": "0", **options}
    found.append(f"CREATE TABLE o ({types}{key}) WITH ({_listed(options)})")
    return [*found, f"INSERT INTO o {query.flink}"]


def _topic(broker: str, name: str, connector: str = "kafka") -> dict[str, str]:
    return {"connector": connector, "topic": name, "properties.bootstrap.servers": broker}


def _listed(options: Mapping[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
