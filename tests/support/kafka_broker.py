"""A real, single-node Kafka broker on loopback, and the jars that it and Spark's connectors need.

Tests and benchmarks use it. Jars come from Maven Central through Spark's own Ivy, in a throw-away JVM without a Spark
context, so that nothing but Java and PySpark has to be installed. Ivy keeps them in its cache; the list of files is
kept beside it, so that only the first run pays for the resolution.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KAFKA_VERSION = "4.3.1"
START_SECONDS = 60.0
STOP_SECONDS = 15.0
MISSING_SECONDS = 6 * 3600.0
"""How long a coordinate that was not found is not asked for again."""


class JarsNotFoundError(Exception):
    """The package registry does not have a coordinate, or cannot be reached."""


def _cache_file(coordinates: Sequence[str], excludes: Sequence[str]) -> Path:
    digest = hashlib.sha256("\n".join([*coordinates, "", *excludes]).encode()).hexdigest()[:16]
    return Path.home() / ".ivy2.5.2" / "watersmeet-tests" / f"{digest}.json"


def resolve_jars(coordinates: Sequence[str], excludes: Sequence[str] = ()) -> tuple[str, ...]:
    """Paths of the jars of Maven ``coordinates`` (group:artifact:version) with all they depend on.

    ``excludes`` are group:artifact pairs to leave out. Raises ``JarsNotFoundError`` with the names that are missing.
    """
    cached = _cache_file(coordinates, excludes)
    if cached.exists():
        known = json.loads(cached.read_text())
        if "missing" not in known and all(Path(path).exists() for path in known["jars"]):
            return tuple(known["jars"])
        if "missing" in known and time.time() - cached.stat().st_mtime < MISSING_SECONDS:
            raise JarsNotFoundError(known["missing"])
    cached.parent.mkdir(parents=True, exist_ok=True)
    try:
        jars = _resolve_with_ivy(coordinates, excludes)
    except JarsNotFoundError as error:
        if "download failed" not in str(error):  # that may pass: two that fill the cache at once disturb each other
            cached.write_text(json.dumps({"missing": str(error)}))
        raise
    cached.write_text(json.dumps({"jars": jars}))
    return jars


def _resolve_with_ivy(coordinates: Sequence[str], excludes: Sequence[str]) -> tuple[str, ...]:
    from py4j.protocol import Py4JJavaError
    from pyspark.java_gateway import launch_gateway

    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    try:
        jvm = gateway.jvm
        maven = jvm.org.apache.spark.util.MavenUtils
        nothing = getattr(getattr(jvm, "scala.None$"), "MODULE$")
        report = jvm.java.io.PrintStream(jvm.java.io.ByteArrayOutputStream())
        left_out = jvm.java.util.ArrayList()
        for exclude in excludes:
            left_out.add(exclude)
        settings = maven.buildIvySettings(nothing, nothing, False, report)
        found = maven.resolveMavenCoordinates(
            ",".join(coordinates),
            settings,
            nothing,
            True,
            jvm.org.apache.spark.api.python.PythonUtils.toSeq(left_out),
            False,
            report,
        )
        return tuple(str(found.apply(i)) for i in range(found.size()))
    except Py4JJavaError as error:
        raise JarsNotFoundError(error.java_exception.getMessage()) from None
    finally:
        process = gateway.proc
        gateway.shutdown()
        process.stdin.close()  # the gateway's JVM ends when its standard input does
        process.wait(timeout=STOP_SECONDS)


def _scala_library() -> str:
    """Spark's own Scala library: Spark's Ivy leaves it out of all that it resolves, and the broker needs it."""
    import pyspark

    return next(str(path) for path in sorted((Path(pyspark.__file__).parent / "jars").glob("scala-library-*.jar")))


def java_command() -> str:
    """The java program that Spark would use."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _properties(directory: Path, broker_port: int, controller_port: int) -> str:
    return "\n".join(
        f"{key}={value}"
        for key, value in {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{broker_port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{broker_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": directory / "log",
            "num.partitions": 1,
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": 0,
            **{
                f"{topic}.{setting}": 1
                for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
                for setting in ("replication.factor", "num.partitions")
            },
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.min.isr": 1,
        }.items()
    )


@dataclass(slots=True)
class Broker:
    """A broker: its address, and how one that runs here is stopped, and started again with what it has stored."""

    address: str
    command: Sequence[str] = ()
    output: Path = Path(os.devnull)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; returns when it takes connections.  Raises ``RuntimeError`` if it does not."""
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(self.command, stdout=output, stderr=subprocess.STDOUT)
        _wait_until_ready(self.process, int(self.address.rpartition(":")[2]), self.output)

    def stop(self, *, at_once: bool = False) -> None:
        """Stop it, or kill it as a crash does; what it has stored stays."""
        if self.process is None:
            return
        process, self.process = self.process, None
        if at_once:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=STOP_SECONDS)

    def create_topic(self, spark: Any, name: str, partitions: int = 1) -> None:
        """Create topic ``name`` with ``partitions`` partitions; returns when the broker says it is there."""
        jvm = spark._jvm
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(self._settings(jvm))
        try:
            topics = jvm.java.util.ArrayList()
            topics.add(jvm.org.apache.kafka.clients.admin.NewTopic(name, partitions, 1))
            admin.createTopics(topics).all().get(30, jvm.java.util.concurrent.TimeUnit.SECONDS)
        finally:
            admin.close()

    def produce(
        self,
        spark: Any,
        topic: str,
        values: Iterable[str | bytes | None],
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Append ``values`` in their order, to one partition if one is named; waits till all are stored.

        For a few thousand values at most: each is a call into the JVM.
        """
        jvm = spark._jvm
        settings = self._settings(jvm)
        kafka = jvm.org.apache.kafka
        writer = kafka.common.serialization.ByteArraySerializer
        producer = kafka.clients.producer.KafkaProducer(settings, writer(), writer())
        at = None if timestamp_ms is None else jvm.java.lang.Long.valueOf(str(timestamp_ms))
        try:
            sent = []
            for value in values:
                data = value.encode() if isinstance(value, str) else value
                payload = None if data is None else bytearray(data)  # py4j makes a byte array of it
                record = kafka.clients.producer.ProducerRecord(topic, partition, at, None, payload)
                sent.append(producer.send(record))
            producer.flush()
            for each in sent:
                each.get(30, jvm.java.util.concurrent.TimeUnit.SECONDS)
        finally:
            producer.close()

    def _settings(self, jvm: Any, more: Mapping[str, str] | None = None) -> Any:
        settings = jvm.java.util.Properties()
        for key, value in {"bootstrap.servers": self.address, **(more or {})}.items():
            settings.setProperty(key, value)
        return settings


@contextlib.contextmanager
def kafka_broker(version: str = KAFKA_VERSION, *, is_measured: bool = False) -> Iterator[Broker]:
    """A Kafka broker of ``version`` in KRaft mode with an empty log; ended, and its log removed, at the end.

    Its JVM compiles quickly, or as well as it can if the broker ``is_measured``, as brokers that run for days do.

    Raises ``JarsNotFoundError`` where the jars cannot be had, ``RuntimeError`` with the broker's output where it
    does not come up within ``START_SECONDS``.
    """
    jars = (*resolve_jars([f"org.apache.kafka:kafka_2.13:{version}"]), _scala_library())
    with tempfile.TemporaryDirectory(prefix="watersmeet-kafka-") as name:
        directory = Path(name)
        broker_port, controller_port = _free_ports(2)
        config = directory / "server.properties"
        config.write_text(_properties(directory, broker_port, controller_port))
        output = directory / "output.txt"
        base = [java_command(), "-Xmx512m", "-Xms128m", "-XX:+UseSerialGC"]
        base += [] if is_measured else ["-XX:TieredStopAtLevel=1"]
        base += ["-cp", os.pathsep.join(jars)]
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        formatting = subprocess.run(
            [*base, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(config)],
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )
        if formatting.returncode != 0:
            said = formatting.stdout + formatting.stderr
            raise RuntimeError(f"the broker's log could not be formatted: {said}")
        broker = Broker(f"127.0.0.1:{broker_port}", [*base, "kafka.Kafka", str(config)], output)
        try:
            broker.start()
            yield broker
        finally:
            broker.stop()


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, output: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return
        time.sleep(0.1)
    raise RuntimeError(f"the broker did not come up: {output.read_text(errors='replace')[-2000:]}")
