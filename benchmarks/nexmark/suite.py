"""Runs Nexmark: Watersmeet, Flink and Spark one after the other, each in its own process, over the same events.

First all engines run all queries over a few events, and their results are compared with DuckDB's.  Then each query is
measured.  Each engine runs it twice in one JVM, and the first run does not count.  Watersmeet and Spark read a file of
each stream in a batch, and batches at the start and the end do not count either.  Rates count all events, also those
of streams that a query does not read.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.nexmark import flink_queries, queries, spark_queries
from benchmarks.nexmark.engines import BATCH
from benchmarks.nexmark.events import STREAMS, Events
from benchmarks.nexmark.generator import SIDE_INPUT, write_files
from benchmarks.nexmark.references import DELTA, difference, over
from benchmarks.streams import streams_folder
from benchmarks.suite import BenchmarkError, flink_of, output_of
from tests.support.kafka_broker import JarsNotFoundError, resolve_jars

__all__ = ["ENGINES", "BenchmarkError", "flink_of"]
ENGINES = ("watersmeet", "flink", "spark")
CORES = 2
#: A query's results are compared over these; a group of 1,000 events lasts as long as the watermark waits.
CHECKED = Events(10_000, disordered=True, rate=250)
_CHECKED_FILES = 5
EVENTS = 4_000_000
BATCHES = 20
#: Batches at the start that fill the state, and those at the end.
_WARM_UP, _LAST = 3, 1
_LEAST_BATCHES = _WARM_UP + _LAST + 2
_FLINK_JARS = ("org.apache.flink:flink-sql-parquet:2.3.0",)
_FLINK_READERS = 2
_HOUR_MICROS = 3_600_000_000
_REFUSED = {"watersmeet": {}, "flink": flink_queries.REFUSED, "spark": spark_queries.REFUSED}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run.

    ``events`` are read in ``batches`` of equal size; ``flink`` is a Python with apache-flink; ``checked`` are the
    events of the comparison.
    """

    names: Sequence[str]
    engines: Sequence[str]
    events: Events
    batches: int
    flink: Path | None
    checked: Events

    def runs(self, engine: str) -> list[str]:
        """The queries that an engine can run."""
        return [name for name in self.names if name not in _REFUSED[engine]]


def run(plan: Plan, progress: Callable[[str], None] = lambda what: None) -> Iterator[dict[str, Any]]:
    """Compare the results of all queries, then yield the figures of each.

    Raises ``BenchmarkError`` where an engine fails, or its results differ from DuckDB's.
    """
    for engine in plan.engines:
        progress(f"{engine}: comparing its results")
        if problems := check(plan, engine):
            listed = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
            raise BenchmarkError(f"no figures of {engine}: {listed}")
    progress("generating the events")
    folder = write_files(streams_folder(), plan.events, plan.batches)
    for name in plan.names:
        found: dict[str, dict[str, Any]] = {}
        for engine in plan.engines:
            if (why := _REFUSED[engine].get(name)) is not None:
                found[engine] = {"refused": why}
                continue
            progress(f"{name}: {engine}")
            found[engine] = _measured(plan, engine, folder, name)
        yield {"query": name, "asks": queries.comment(name), "events": plan.events.count, "engines": found}


def header() -> str:
    """The head of the table."""
    columns = ("query", "engine", "events/s", "a core", "to Flink", "batch", "state rows", "state")
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"


def rows(result: dict[str, Any]) -> str:
    """The lines of a query in the table."""
    flink = result["engines"].get("flink", {}).get("events_per_s")
    lines = []
    for engine, each in result["engines"].items():
        if "refused" in each:
            lines.append(f"| {result['query']} | {engine} | cannot run it: {each['refused']} | | | | | |")
            continue
        rate = each["events_per_s"]
        ratio = f"{rate / flink:.2f}" if flink else ""
        batch, state = "", " | "
        if "batch_ms" in each:
            batch = f"{statistics.median(_steady(each['batch_ms'])):,.0f} ms"
            state = f"{each['state_rows']:,} | {each['state_bytes'] / 1e6:,.1f} MB"
        figures = f"{rate:,.0f} | {rate / CORES:,.0f} | {ratio} | {batch} | {state}"
        lines.append(f"| {result['query']} | {engine} | {figures} |")
    return "\n".join(lines)


def check(plan: Plan, engine: str) -> dict[str, str]:
    """Compare an engine's results with DuckDB's; return what is wrong, by query."""
    names = plan.runs(engine)
    if engine == "flink":
        names = [name for name in names if name not in flink_queries.UNCHECKED]
    if not names:
        return {}
    with tempfile.TemporaryDirectory(prefix="watersmeet-nexmark-", ignore_cleanup_errors=True) as scratch:
        folder = write_files(Path(scratch), plan.checked, _CHECKED_FILES)
        out = Path(scratch) / "out"
        out.mkdir()
        problems = _write(plan, engine, folder, out, names)
        with over(folder) as con:
            for name in names:
                if name in problems:
                    continue
                found = _newest(con, engine, name, out)
                columns = [each for each in found.column_names if each not in (DELTA, BATCH)]
                if (problem := difference(con, name, found, columns)) is not None:
                    problems[name] = problem
    return problems


def _write(plan: Plan, engine: str, folder: Path, out: Path, names: Sequence[str]) -> dict[str, str]:
    """Let an engine write its results; return what failed, by query."""
    if engine == "flink":
        return _of_flink(plan, "write", folder, str(out), names)
    windowed = [name for name in names if engine == "spark" and name in spark_queries.WINDOWED]
    others = [name for name in names if name not in windowed]
    problems: dict[str, str] = {}
    for chosen, of in ((others, folder), (windowed, _with_end(folder) if windowed else folder)):
        if chosen:
            problems |= _last_line(_command(engine, "write", of, str(out), *chosen), engine)
    return problems


def _with_end(folder: Path) -> Path:
    """A copy of the streams in which a row that joins nothing comes an hour later, so that Spark closes all windows."""
    ended = folder.with_name(f"{folder.name}-ended")
    for number, name in enumerate((*STREAMS, SIDE_INPUT)):
        (ended / name).mkdir(parents=True)
        files = sorted((folder / name).glob("*.parquet"))
        for file in files:
            (ended / name / file.name).hardlink_to(file)
        if name == SIDE_INPUT:
            continue
        last = pq.read_table(files[-1]).slice(0, 1)
        for place, column in enumerate(last.column_names):
            if column in ("id", "auction", "bidder", "seller"):
                last = last.set_column(place, column, pa.array([-1 - 10 * number - place]))
            elif column == "date_time":
                later = last[column].cast(pa.int64()).to_pylist()[0] + _HOUR_MICROS
                last = last.set_column(place, column, pa.array([later]).cast(last[column].type))
        pq.write_table(last, ended / name / "part-99999.parquet")
    return ended


def _newest(con: Any, engine: str, name: str, out: Path) -> pa.Table:
    """What an engine has written; of results that replace each other by key, the newest ones."""
    of_flink = engine == "flink"
    keys = (flink_queries if of_flink else spark_queries).UPDATED.get(name) if engine != "watersmeet" else None
    path = out / f"{name}.parquet" if of_flink else out / name / "*.parquet"
    found = con.sql(f"SELECT * FROM read_parquet('{path}')").to_arrow_table()
    if keys is None:
        return found
    con.register("written", found)
    last = f"QUALIFY row_number() OVER (PARTITION BY {', '.join(keys)} ORDER BY {BATCH} DESC) = 1"
    newest = con.sql(f"SELECT * FROM written {last}").to_arrow_table()
    con.unregister("written")
    if DELTA not in newest.column_names:
        return newest
    return newest.filter(pa.compute.equal(newest[DELTA], 1))


def _measured(plan: Plan, engine: str, folder: Path, name: str) -> dict[str, Any]:
    if engine == "flink":
        rate = _of_flink(plan, "measure", folder, str(plan.events.count), [name])[name]
        if isinstance(rate, str):
            raise BenchmarkError(f"no figures of {name}: flink failed: {rate}")
        return {"events_per_s": rate}
    found = _last_line(_command(engine, "measure", folder, name), f"{engine}-{name}")
    steady = _steady(found["batch_ms"])
    events = plan.events.count / plan.batches
    return {"events_per_s": 1000 * events * len(steady) / sum(steady), **found}


def _steady(batch_ms: Sequence[int]) -> Sequence[int]:
    """The batches that count."""
    return batch_ms[_WARM_UP:-_LAST] or batch_ms


def _command(engine: str, what: str, folder: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.nexmark.engines", engine, what, str(folder), *more]


def _last_line(command: Sequence[str], name: str) -> Any:
    return json.loads(output_of(command, name.split("-", maxsplit=1)[0], f"nexmark {name}").strip().splitlines()[-1])


def _of_flink(plan: Plan, what: str, folder: Path, argument: str, names: Sequence[str]) -> dict[str, Any]:
    """Run Flink; return what it prints."""
    streams = _for_flink(folder)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as texts:
        json.dump({name: flink_queries.text(name) for name in names}, texts)
        texts.flush()
        script = Path(__file__).with_name("flink.py")
        command = [str(plan.flink), str(script), what, str(streams), texts.name, argument, *_jars()]
        found: dict[str, Any] = _last_line(command, "flink")
    return found


def _for_flink(folder: Path) -> Path:
    """The same rows in a file for each of Flink's readers, each with all times: files are read in no certain order."""
    found = folder.with_name(f"{folder.name}-flink")
    done = found / "done"
    if done.exists():
        return found
    for name in (*STREAMS, SIDE_INPUT):
        (found / name).mkdir(parents=True, exist_ok=True)
        files = sorted((folder / name).glob("*.parquet"))
        readers = 1 if name == SIDE_INPUT else _FLINK_READERS
        for reader in range(readers):
            path = found / name / f"reader-{reader}.parquet"
            with pq.ParquetWriter(path, pq.read_schema(files[0]), coerce_timestamps="ms") as writer:
                for file in files:
                    table = pq.read_table(file)
                    writer.write_table(table.take(pa.array(range(reader, len(table), readers))))
    done.touch()
    return found


def _jars() -> list[str]:
    """The jars with which Flink reads Parquet files: its format, and Hadoop's classes, which PySpark brings."""
    import pyspark

    try:
        found = [jar for each in _FLINK_JARS for jar in resolve_jars([each])]
    except JarsNotFoundError as error:
        raise BenchmarkError(f"no figures of flink: {error}") from None
    hadoop = sorted((Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar"))
    return [*found, *map(str, hadoop)]


def plan_of(names: Sequence[str], engines: Sequence[str], events: int, batches: int, flink: Path | None) -> Plan:
    """The plan of a run; ``BenchmarkError`` if there are too few batches, or fewer events than batches."""
    if batches < _LEAST_BATCHES:
        raise BenchmarkError(f"nexmark needs at least {_LEAST_BATCHES} batches, not {batches}: some do not count")
    if events < batches:
        raise BenchmarkError(f"there are {batches} batches, so nexmark needs at least {batches} events, not {events}")
    return Plan(names, engines, replace(Events(EVENTS), count=events - events % batches), batches, flink, CHECKED)
