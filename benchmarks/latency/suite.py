"""Measures the latency of queries, at each rate with one engine after the other, over fresh topics of one broker."""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.latency import flink
from benchmarks.latency.load import FIRST_SECONDS
from benchmarks.latency.processes import Process, started
from benchmarks.latency.queries import PARTITIONS, QUERIES, Query
from benchmarks.memory import Usage
from benchmarks.suite import FLINK_CONNECTOR, BenchmarkError, flink_of
from benchmarks.topics import NoJarsError
from tests.support import spark_jars
from tests.support.kafka_broker import JarsNotFoundError, kafka_broker, resolve_jars

__all__ = ["ENGINES", "QUERIES", "RATES", "BenchmarkError", "Plan", "flink_of", "header", "row", "run"]

RATES = (10, 100, 1_000, 10_000)
ENGINES = ("real_time", "micro_batch", "spark_real_time", "spark_micro_batch", "spark_python", "flink")
#: Spark joins streams in windows alone, and its real-time mode none but these.
_SPARK_QUERIES = {
    "spark_real_time": ("inner", "passed"),
    "spark_micro_batch": ("inner", "passed"),
    "spark_python": ("passed",),
}
_TOPIC_SECONDS = 20.0
_POLL_SECONDS = 0.2
#: What a measurement may take beside the times that are known.
_SPARE_SECONDS = 120.0
_SAMPLE_SECONDS = 5.0
_QUARTERS = 4
_FIGURES = ("mean", "p50", "p95", "p99", "max")
_MEMORY = ("JVM, MB by quarters", "Python, MB by quarters")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured.

    ``seconds`` is the time of one measurement, after ``warm_up`` seconds that do not count.  ``patience`` is how long
    the last results may take.  ``flink`` is a Python with apache-flink.
    """

    queries: Sequence[str] = tuple(QUERIES)
    rates: Sequence[int] = RATES
    engines: Sequence[str] = ENGINES
    seconds: float = 60.0
    warm_up: float = 20.0
    epoch: float = 30.0
    patience: float = 120.0
    flink: Path | None = None

    @property
    def measurements(self) -> list[tuple[Query, int, str]]:
        """The measurements in their order."""
        return [
            (QUERIES[name], rate, engine)
            for name in self.queries
            for rate in self.rates
            for engine in self.engines
            if (self.flink is not None or engine != "flink") and name in _SPARK_QUERIES.get(engine, QUERIES)
        ]

    @property
    def notes(self) -> list[str]:
        """A sentence for what was asked for and is left out."""
        left_out = "flink" in self.engines and self.flink is None
        return ["flink is left out: --flink names no Python with apache-flink"] if left_out else []


@dataclass(frozen=True, slots=True)
class _Setup:
    """The running broker, and the jars of each engine."""

    broker: str
    spark_jars: tuple[str, ...]
    flink_jars: tuple[str, ...]


def run(plan: Plan, progress: Callable[[str], None] = lambda what: None) -> Iterator[dict[str, Any]]:
    """Measure what is planned, and yield each measurement when it is done.

    One without figures has ``problem`` instead: what is missing, or why.  Raises ``BenchmarkError`` if nothing can be
    measured.
    """
    measurements = plan.measurements
    with contextlib.ExitStack() as stack:
        for note in plan.notes:
            progress(f"latency: {note}")
        progress("latency: starting a Kafka broker")
        try:
            setup = _setup(
                stack.enter_context(kafka_broker(is_measured=True)).address, {engine for _, _, engine in measurements}
            )
        except (NoJarsError, JarsNotFoundError, RuntimeError) as error:
            raise BenchmarkError(f"no figures of latency: {error}") from None
        for note in spark_jars.notes.values():
            progress(f"latency: {note}")
        for query, rate, engine in measurements:
            progress(f"latency: {query.name}, {rate:,} rows/s a side, {engine}")
            found = _measured(plan, setup, query, rate, engine)
            if "problem" in found:
                progress(f"latency: no figures of {query.name}, {rate:,} rows/s a side, {engine}: {found['problem']}")
            yield {"query": query.name, "rate": rate, "engine": engine, **found}


def header() -> str:
    """Return the first lines of the table."""
    columns = ("query", "rows/s a side", "engine", "sent", "expected", "received", "results", *_FIGURES, *_MEMORY)
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"


def row(found: dict[str, Any]) -> str:
    """Return the rows of a measurement: one for each kind of results.  Times are in milliseconds."""
    counts = [f"{found[name]:,}" if name in found else "" for name in ("sent", "expected", "received")]
    head = [found["query"], f"{found['rate']:,}", found["engine"], *counts]
    if "problem" in found:
        return f"| {' | '.join([*head, 'no figures', *[''] * len((*_FIGURES, *_MEMORY))])} |"
    memory = [" ".join(f"{each:,}" for each in quarters) for quarters in found["memory_mb"].values()]
    lines = [
        [*head, kind, *(f"{each[name]:,.1f}" for name in _FIGURES), *memory]
        for kind, each in found["latency_ms"].items()
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def problem(found: dict[str, Any]) -> str | None:
    """Return a sentence about what is wrong with the results; None if they are those expected."""
    wrong = [f"{found[name]:,} {name}" for name in ("missing", "unexpected", "repeated") if found[name]]
    return f"the results differ from those expected: {', '.join(wrong)}" if wrong else None


def _setup(broker: str, engines: set[str]) -> _Setup:
    for_spark: tuple[str, ...] = ()
    if engines - {"flink"}:
        for_spark = spark_jars.package_jars("kafka")
        if not for_spark:
            raise NoJarsError(spark_jars.notes["kafka"])
    return _Setup(broker, for_spark, resolve_jars([FLINK_CONNECTOR]) if "flink" in engines else ())


def _measured(plan: Plan, setup: _Setup, query: Query, rate: int, engine: str) -> dict[str, Any]:
    topics = f"{query.name}-{rate}-{engine}"
    at_most = FIRST_SECONDS + plan.warm_up + plan.seconds + query.tail_ms / 1000 + plan.patience + _SPARE_SECONDS
    load = [sys.executable, "-m", "benchmarks.latency.load", query.name, str(rate)]
    load += [f"--broker={setup.broker}", f"--topics={topics}", f"--patience={plan.patience}"]
    load += [f"--seconds={plan.seconds}", f"--warm-up={plan.warm_up}"]
    with (
        _topics(setup.broker, [f"{topics}-{name}" for name in (*query.sides, "o")]),
        started(engine, _command(plan, setup, query, engine, topics)) as running,
        started("load", load) as sending,
    ):
        memory = Memory(running.id)
        failed = _first_failure((sending, running), time.monotonic() + at_most, memory)
        if failed is not None:
            return {"problem": f"{failed}; the output of {engine} is in {running.keep_errors()}"}
        found: dict[str, Any] = {**json.loads(sending.output), "memory_mb": memory.figures(plan.seconds)}
    wrong = problem(found)
    return found if wrong is None else {**found, "problem": wrong}


def _command(plan: Plan, setup: _Setup, query: Query, engine: str, topics: str) -> list[str]:
    if engine == "flink":
        jars = [Path(jar).as_uri() for jar in setup.flink_jars]
        job = {
            "settings": flink.settings(plan.epoch, jars),
            "statements": flink.statements(query, setup.broker, topics),
        }
        return [str(plan.flink), "-m", "benchmarks.latency.run_flink", json.dumps(job)]
    command = [sys.executable, "-m", "benchmarks.latency.engines", engine, query.name, f"--broker={setup.broker}"]
    return [*command, f"--topics={topics}", f"--jars={','.join(setup.spark_jars)}", f"--epoch={plan.epoch}"]


class Memory:
    """Samples the memory of an engine, which is that of the processes below one."""

    def __init__(self, engine: int) -> None:
        self._engine = engine
        self._samples: list[tuple[float, Usage]] = []

    def look(self) -> None:
        """Take a sample, if it is time for one."""
        now = time.monotonic()
        if not self._samples or now - self._samples[-1][0] >= _SAMPLE_SECONDS:
            self._samples.append((now, Usage.of(self._engine)))

    def figures(self, seconds: float) -> dict[str, list[int]]:
        """Return the medians, in megabytes, of each quarter of so many seconds before now."""
        started = time.monotonic() - seconds
        quarters: list[list[Usage]] = [[] for _ in range(_QUARTERS)]
        for at, usage in self._samples:
            if at > started:
                quarters[min(int((at - started) / seconds * _QUARTERS), _QUARTERS - 1)].append(usage)

        def medians(of: Callable[[Usage], int]) -> list[int]:
            return [round(statistics.median(map(of, quarter)) / 1e6) for quarter in quarters if quarter]

        return {"jvm": medians(lambda usage: usage.jvm), "workers": medians(lambda usage: usage.workers)}


def _first_failure(processes: tuple[Process, Process], deadline: float, memory: Memory) -> str | None:
    """Wait for the load to end; return what failed, or None."""
    sending, running = processes
    while sending.exit_code is None:
        memory.look()
        if running.exit_code is not None:
            return f"{running.name} failed"
        if time.monotonic() > deadline:
            return "the measurement took too long"
        time.sleep(_POLL_SECONDS)
    return None if sending.exit_code == 0 else sending.errors.strip().splitlines()[-1]


@contextlib.contextmanager
def _topics(broker: str, names: Sequence[str]) -> Iterator[None]:
    """Create topics, and delete them when the block ends.  If it fails, they go with the broker."""
    admin = AdminClient({"bootstrap.servers": broker, "log_level": 0})
    for created in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        created.result(_TOPIC_SECONDS)
    yield
    for deleted in admin.delete_topics(list(names)).values():
        deleted.result(_TOPIC_SECONDS)
