"""A job that is killed again and again, and a registry that is killed meanwhile: nothing is lost or doubled."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.schema_registry.test_on_spark import World
from tests.spark.test_crash import kill
from tests.support.jobs import environment, run_job
from tests.support.kafka_broker import Broker
from tests.support.schema_registry import RegistryServer

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.timeout(1_500),
]

PATIENCE_SECONDS = 240.0
PART = 150


def schema(version: int, topic: str) -> dict[str, object]:
    """Versions of one schema, each with another field beside the id, none known to any process before."""
    tags: dict[str, object] = {"name": "tags", "type": ["null", {"type": "array", "items": "string"}], "default": None}
    unit: dict[str, object] = {"name": "unit", "type": "string", "default": "EUR"}
    id: dict[str, object] = {"name": "id", "type": "int" if version == 0 else "long"}
    fields = [id, *([unit] if version > 0 else [])]
    fields += [tags] if version > 1 else []
    return {"type": "record", "name": "Row", "doc": f"{topic} {version}", "fields": fields}


def rows_of_part(version: int) -> list[dict[str, object]]:
    ids = range(version * PART, (version + 1) * PART)
    return [{"id": id, "unit": "CHF", "tags": [f"t{id}"]} for id in ids]


def expected(versions: int) -> Counter[str]:
    found = Counter[str]()
    for version in range(versions):
        for row in rows_of_part(version):
            unit = row["unit"] if version > 0 else "EUR"
            tags = row["tags"] if version > 1 else None
            found[json.dumps([row["id"], unit, tags])] += 1
    return found


def lines_of(folder: Path) -> Counter[str]:
    found = Counter[str]()
    for path in (folder / "lines").glob("*.json"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            found[json.dumps([row["id"], row["unit"], row["tags"]])] += 1
    return found


@contextmanager
def running(folder: Path, *given: str) -> Iterator[subprocess.Popen[bytes]]:
    """The job, which is killed at the end, with its JVM and workers."""
    command = [sys.executable, "-m", "tests.schema_registry.killed_job", str(folder), *given]
    with (folder / "log.txt").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment(), start_new_session=True)
    try:
        yield process
    finally:
        kill(process)


@pytest.mark.parametrize("format", ["avro", "protobuf", "json"])
def test_a_killed_job_and_a_killed_registry(
    spark: SparkSession, broker: Broker, registry: RegistryServer, tmp_path: Path, format: str
) -> None:
    world = World(spark, broker, registry, tmp_path / "reader")
    source, target = world.topic(2), world.topic(2)
    chance = random.Random(format)
    newest = schema(3, source)
    subject = f"{source}-value"
    numbers = [registry.register(subject, schema(version, source)) for version in range(4)]
    assert len(set(numbers)) == 4
    job = (broker.address, registry.url, source, target, format)
    for version in range(3):
        with running(tmp_path, *job) as process:
            given = rows_of_part(version)
            world.send(source, schema(version, source), *given, number=numbers[version])
            deadline = time.monotonic() + PATIENCE_SECONDS
            while len(lines_of(tmp_path)) <= version * PART:
                assert process.poll() is None, (tmp_path / "log.txt").read_text()[-4_000:]
                assert time.monotonic() < deadline
                time.sleep(0.1)
            registry.stop(at_once=True)
            time.sleep(chance.uniform(0, 1.5))
            if version == 1:  # it comes back while the job runs, which goes on by itself
                registry.start()
                while len(lines_of(tmp_path)) < (version + 1) * PART:
                    assert process.poll() is None, (tmp_path / "log.txt").read_text()[-4_000:]
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
        if version != 1:
            registry.start()
    world.send(source, newest, *rows_of_part(3), number=numbers[3])
    registry.stop(at_once=True)
    registry.start()
    with running(tmp_path, *job) as process:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(lines_of(tmp_path)) < 4 * PART or copied(broker, target) < 4 * PART:
            assert process.poll() is None, (tmp_path / "log.txt").read_text()[-4_000:]
            assert time.monotonic() < deadline, (tmp_path / "log.txt").read_text()[-4_000:]
            time.sleep(0.2)
    assert lines_of(tmp_path) == expected(4)
    run_job(
        world.session,
        f"CREATE STREAM r (id BIGINT, unit STRING, tags ARRAY<STRING>) {world.options(target, format)};"
        f"{world.files('lines')} INSERT INTO lines SELECT id, unit, tags FROM r",
    )
    wanted = expected(4)
    if format == "protobuf":  # a list that is absent is empty
        wanted = Counter({text.replace(" null]", " []]"): n for text, n in wanted.items()})
    assert lines_of(world.folder) == wanted
    assert list(tmp_path.rglob("*.jsonl")) == []
    world.session.stop()


def copied(broker: Broker, topic: str) -> int:
    """How many records a topic holds that were committed."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": broker.address, "group.id": "test", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in (0, 1)])
        found, ended, deadline = 0, 0, time.monotonic() + 30
        while ended < 2 and time.monotonic() < deadline:
            for message in consumer.consume(1_000, 0.5):
                found, ended = (found + 1, ended) if message.error() is None else (found, ended + 1)
        return found
    finally:
        consumer.close()
