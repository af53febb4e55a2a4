"""Runs workloads: Watersmeet and its peers one after the other, each in its own process, on the same files.

Figures of a workload are printed only if the results of all engines equal those of a batch query in DuckDB.  Flink
reads the same topics in a workload over Kafka; in others it uses its own generator, with the same numbers of rows and
keys, and its figure includes startup.  Its results are not compared.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.engines import batch_answer, table_path
from benchmarks.figures import p95
from benchmarks.flink_many import KINDS as FLINK_KINDS
from benchmarks.streams import streams_folder, write_streams
from benchmarks.topics import Kafka, NoJarsError, jars, topic
from benchmarks.workloads import WORKLOADS, Workload
from tests.support.kafka_broker import JarsNotFoundError, kafka_broker, resolve_jars

_ROOT = Path(__file__).resolve().parent.parent
_PATIENCE_SECONDS = 3600
_FLINK_KAFKA, _FLINK_MANY = (Path(__file__).with_name(name) for name in ("flink_kafka.py", "flink_many.py"))
#: Flink's Kafka connector has releases of its own.  This is the newest, and the Avro format of Flink 2.3.
FLINK_CONNECTOR = "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2"
_FLINK_JARS = (FLINK_CONNECTOR, "org.apache.flink:flink-sql-avro:2.3.0")
#: The number of batches at the end that do not count: nothing follows the last one.  Over Kafka a small batch with the
#: rest of the records may follow it, which does not count either.
_LAST = 1


class BenchmarkError(Exception):
    """There are no figures: an engine cannot run, failed, or its results differ from DuckDB's batch query."""


@dataclass(frozen=True, slots=True)
class Flink:
    """A Python with apache-flink, and the script that runs its joins of generated rows."""

    python: Path
    script: Path | None


def workload_of(name: str, rows: int | None = None) -> Workload:
    """Return a workload, with ``rows`` rows per side if given; ``BenchmarkError`` if that is too few."""
    try:
        return WORKLOADS[name] if rows is None else WORKLOADS[name].of_rows(rows)
    except ValueError as error:
        raise BenchmarkError(str(error)) from None


def flink_of(python: Path, script: Path | None) -> Flink:
    """Return the installed Flink; ``BenchmarkError`` for a missing script, or a Python without apache-flink."""
    if script is not None and not script.is_file():
        raise BenchmarkError(f"--flink-script: there is no file {script}")
    try:
        subprocess.run([str(python), "-c", "import pyflink"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        raise BenchmarkError(f"--flink: {python} is not a Python interpreter with apache-flink") from None
    return Flink(python, script)


def brings_flink(workload: Workload) -> bool:
    """Return whether the script of Flink's join is here: of other workloads, ``--flink-script`` names it."""
    return bool(workload.records) or workload.flink in FLINK_KINDS


def run(
    workload: Workload,
    *,
    flink: Flink | None = None,
    peers: bool = True,
    progress: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """Measure one workload and return its figures; calls ``progress`` with what runs.

    Raises ``BenchmarkError`` if an engine fails, or its results differ.
    """
    name = workload.name
    progress(f"{name}: generating its streams")
    data = write_streams(streams_folder(), workload.data)
    for side in workload.tables:
        table_path(data, side)
    engines = ["watersmeet", *(("spark", "spark_defaults") if workload.spark is not None and peers else ())]
    flink_rate = None
    found: dict[str, Any] = {}
    with _filled_topics(workload, data, progress) if workload.records else contextlib.nullcontext() as kafka:
        if flink is not None and workload.flink is not None:  # first, because the script may fail
            progress(f"{name}: flink")
            flink_rate = _flink(flink, workload, kafka)
        for engine in engines:
            progress(f"{name}: {engine}")
            found[engine] = measured(engine, workload, data, kafka.arguments if kafka is not None else ())
    progress(f"{name}: batch query in DuckDB")
    expected = batch_answer(workload, data)
    for engine, figures in found.items():
        if (sums := figures.pop("sums")) != expected:
            differ = f"the results of {engine} differ from DuckDB's: {sums}, expected {expected}"
            raise BenchmarkError(f"no figures of {name}: {differ}")
    if flink_rate is not None:
        found["flink"] = {"rows_per_s": flink_rate}
    ours = found["watersmeet"]["rows_per_s"]
    ratios = {engine: round(ours / each["rows_per_s"], 2) for engine, each in found.items() if engine != "watersmeet"}
    return {"workload": name, "title": workload.title, "rows": workload.data.rows, "engines": found, "ratios": ratios}


def markdown(result: dict[str, Any]) -> str:
    """Return a table of a workload's figures."""
    sides = len(WORKLOADS[result["workload"]].data.sides)
    lines = [
        f"### {result['workload']}: {result['title']}, {sides} × {result['rows']:,} rows\n",
        "| engine | rows/s | ratio | median batch | p95 | whole run | workers | JVM | state | rows out |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for engine, each in result["engines"].items():
        ratio = result["ratios"].get(engine, "")
        if "batch_ms" not in each:
            lines.append(f"| {engine} | {each['rows_per_s']:,} | {ratio} | | | | | | | |")
            continue
        lines.append(
            f"| {engine} | {each['rows_per_s']:,} | {ratio} | {each['median_ms']:,.0f} ms | {each['p95_ms']:,.0f} ms | "
            f"{each['seconds']:.1f} s | {each['worker_bytes'] / 1e6:,.0f} MB | {each['jvm_bytes'] / 1e6:,.0f} MB | "
            f"{each['state_bytes'] / 1e6:,.0f} MB | {each['rows_out']:,} |"
        )
    if (rate := result["engines"]["watersmeet"]["hit_rate"]) is not None:
        megabytes = result["engines"]["watersmeet"]["loaded_bytes"] / 1e6
        lines.append(
            f"\nworking sets: {rate:.0%} of the state was cached when a step began, {megabytes:,.0f} MB loaded"
        )
    return "\n".join(lines)


def measured(engine: str, workload: Workload, data: Path, more: Sequence[str] = ()) -> dict[str, Any]:
    """Run one engine in its own process and return its figures; ``more`` are further arguments of ``engines.py``."""
    reported = _child(engine, workload, data, more)
    batches = reported["batch_ms"]
    steady = batches[workload.warm_up : workload.data.files - _LAST] or batches
    if workload.warm:  # one batch: from the start of the query to its end
        rate = workload.data.rows_a_batch * workload.data.files / reported["seconds"]
    else:
        rate = workload.data.rows_a_batch * len(steady) / sum(steady) * 1000
    return {
        "rows_per_s": round(rate),
        "median_ms": statistics.median(steady),
        "p95_ms": p95(steady),
        **reported,
    }


@contextlib.contextmanager
def _filled_topics(workload: Workload, data: Path, progress: Callable[[str], None]) -> Iterator[Kafka]:
    """Start a Kafka broker and fill a workload's topics; the broker stops when the block ends."""
    name = workload.name
    with contextlib.ExitStack() as stack:
        progress(f"{name}: starting a Kafka broker")
        try:
            found, notes = jars(workload)
            broker = stack.enter_context(kafka_broker(is_measured=True))
        except (NoJarsError, JarsNotFoundError, RuntimeError) as error:
            raise BenchmarkError(f"no figures of {name}: {error}") from None
        for note in notes:
            progress(f"{name}: {note}")
        progress(f"{name}: filling its topics")
        kafka = Kafka(broker.address, found)
        arguments = [name, str(workload.data.rows), str(data), *kafka.arguments]
        output_of([sys.executable, "-m", "benchmarks.topics", *arguments], "kafka", workload.name)
        yield kafka


def _child(engine: str, workload: Workload, data: Path, more: Sequence[str]) -> dict[str, Any]:
    arguments = [engine, workload.name, str(workload.data.rows), str(data), *more]
    command = [sys.executable, "-m", "benchmarks.engines", *arguments]
    found: dict[str, Any] = json.loads(output_of(command, engine, workload.name).strip().splitlines()[-1])
    return found


def _flink(flink: Flink, workload: Workload, kafka: Kafka | None) -> int:
    data = workload.data
    if kafka is not None:
        topics = [topic(workload, side) for side in data.sides]
        rows = str(len(data.sides) * data.rows)
        arguments = [str(_FLINK_KAFKA), workload.records, kafka.address, *topics, rows, *_flink_jars(workload)]
    elif workload.flink in FLINK_KINDS:
        arguments = [str(_FLINK_MANY), data.sides, str(data.rows), *(str(data.keys_of(side)) for side in data.sides)]
    else:
        arguments = [str(flink.script), "hashmap", str(data.rows), str(data.keys), "2"]
    script, *others = arguments
    command = [str(flink.python), script, str(workload.flink), *others]
    rate = re.search(r"= (\d+) rows/s", output_of(command, "flink", workload.name))
    if rate is None:
        raise BenchmarkError(f"no figures of {workload.name}: the script of Flink's joins reported no rate")
    return int(rate[1])


def _flink_jars(workload: Workload) -> list[str]:
    """Return the jars with which Flink reads the topics."""
    try:
        return [jar for each in _FLINK_JARS for jar in resolve_jars([each])]
    except JarsNotFoundError as error:
        raise BenchmarkError(f"no figures of {workload.name}: {error}") from None


def output_of(command: Sequence[str], engine: str, name: str) -> str:
    """Run a command and return its standard output; if it fails, keep its standard error in a file and name that.

    Its temporary files are deleted in any case; those of a JVM when that ends.
    """
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-", ignore_cleanup_errors=True) as scratch:
        errors = Path(scratch) / "errors.log"
        try:
            with errors.open("w") as log:
                return subprocess.run(
                    command,
                    check=True,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    cwd=_ROOT,
                    env={**os.environ, "TMPDIR": scratch},
                    timeout=_PATIENCE_SECONDS,
                ).stdout
        except subprocess.SubprocessError as error:
            how = f"took more than {_PATIENCE_SECONDS} s" if isinstance(error, subprocess.TimeoutExpired) else "failed"
            kept = Path(tempfile.gettempdir()) / f"{Path(scratch).name}-{engine}.log"
            shutil.copyfile(errors, kept)
            raise BenchmarkError(f"no figures of {name}: {engine} {how}; its output is in {kept}") from None
