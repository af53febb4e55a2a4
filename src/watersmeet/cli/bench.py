"""``watersmeet bench``: the repository's benchmarks, compared with Spark's own operator and, optionally, Flink."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from watersmeet.cli import bench_latency, bench_nexmark, bench_seeds
from watersmeet.cli.parameters import UsageError
from watersmeet.errors import WatersmeetError, did_you_mean


def bench(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME…]", help="Workloads (none: list them).")] = None,
    every: Annotated[bool, typer.Option("--all", help="All workloads but latency, nexmark and seeds.")] = False,
    alone: Annotated[bool, typer.Option("--alone", help="Do not run Spark's own operator.")] = False,
    flink: Annotated[Path | None, typer.Option(help="A Python interpreter with apache-flink.")] = None,
    flink_script: Annotated[Path | None, typer.Option(help="The script of Flink's joins, except over Kafka.")] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Rows per side (default: those of each workload).")] = None,
    into: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.")] = None,
    queries: Annotated[list[str] | None, typer.Option("--query", help="latency: a query (repeat; all).")] = None,
    rates: Annotated[list[int] | None, typer.Option("--rate", min=1, help="latency: rows/s a side (repeat).")] = None,
    engines: Annotated[list[str] | None, typer.Option("--engine", help="latency: an engine (repeat; all).")] = None,
    seconds: Annotated[float | None, typer.Option(min=1, help="latency: seconds of one measurement.")] = None,
    warm_up: Annotated[float | None, typer.Option(min=0, help="latency: seconds before it.")] = None,
    epoch: Annotated[float | None, typer.Option(min=1, help="latency: seconds of an epoch in real time.")] = None,
    events: Annotated[int | None, typer.Option(min=1, help="nexmark: events of all streams.")] = None,
    batches: Annotated[int | None, typer.Option(min=1, help="nexmark: batches that Watersmeet and Spark read.")] = None,
    peers: Annotated[str | None, typer.Option("--engines", help="nexmark: watersmeet,flink,spark.")] = None,
) -> None:
    """Measure workloads and print a table for each; figures are printed only if all results are correct."""
    of_latency = bench_latency.Options(queries, rates, engines, seconds, warm_up, epoch)
    of_nexmark = bench_nexmark.Options(events, batches, peers)
    if (names or [])[:1] == [bench_nexmark.NAME]:
        of_latency.refuse()
        others = {"--all": every, "--alone": alone, "--flink-script": flink_script, "--rows": rows}
        bench_nexmark.refuse_others(others)
        _check_file(into)
        known_queries = _benchmarks("nexmark.queries").NAMES
        bench_nexmark.measure(_benchmarks("nexmark.suite"), known_queries, names or [], of_nexmark, flink, into)
        return
    of_nexmark.refuse()
    if bench_latency.NAME in (names or []):
        others = {"--all": every, "--alone": alone, "--flink-script": flink_script, "--rows": rows}
        bench_latency.refuse_others(names or [], others)
        _check_file(into)
        bench_latency.measure(_benchmarks("latency.suite"), of_latency, flink, into)
        return
    of_latency.refuse()
    if bench_seeds.NAME in (names or []):
        others = {"--all": every, "--alone": alone, "--flink": flink, "--rows": rows, "--json": into}
        bench_seeds.refuse_others(names or [], {**others, "--flink-script": flink_script})
        bench_seeds.measure(_benchmarks("seeds"))
        return
    suite = _benchmarks("suite")
    known = list(suite.WORKLOADS)
    if names and every:
        raise UsageError("--all takes no names", hint=f"leave out --all to run {' '.join(names)} alone")
    if not names and not every:
        if alone or into is not None or rows is not None or flink is not None or flink_script is not None:
            raise UsageError("no workload is named", hint="name workloads, or use --all")
        for workload in suite.WORKLOADS.values():
            typer.echo(f"{workload.name:15} {workload.title}")
        typer.echo(f"{bench_latency.NAME:15} {bench_latency.TITLE}")
        typer.echo(f"{bench_nexmark.NAME:15} {bench_nexmark.TITLE}")
        typer.echo(f"{bench_seeds.NAME:15} {bench_seeds.TITLE}")
        return
    for name in names or []:
        if name not in known:
            raise UsageError(
                f"there is no workload {name}",
                hint=did_you_mean(name, [*known, bench_latency.NAME, bench_nexmark.NAME, bench_seeds.NAME]),
            )
    needs_script = any(not suite.brings_flink(suite.WORKLOADS[name]) for name in names or known)
    if flink_script is not None if flink is None else needs_script and flink_script is None:
        hint = "workloads over Kafka and of many streams need --flink alone"
        raise UsageError("--flink and --flink-script must be used together", hint=hint)
    _check_file(into)
    try:
        workloads = [suite.workload_of(name, rows) for name in names or known]
        peer = suite.flink_of(flink, flink_script) if flink is not None else None
    except suite.BenchmarkError as error:
        raise UsageError(str(error)) from None
    _measure(suite, workloads, into, flink=peer, peers=not alone)


def _measure(suite: Any, workloads: list[Any], into: Path | None, **options: Any) -> None:
    """Print and store the figures of each workload when it is done, so that they survive the failure of a later one."""
    results: list[Any] = []
    try:
        for workload in workloads:
            results.append(suite.run(workload, progress=bench_latency.print_progress, **options))
            typer.echo(suite.markdown(results[-1]) + "\n")
            if into is not None:
                into.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    except suite.BenchmarkError as error:
        raise WatersmeetError(str(error)) from None
    except KeyboardInterrupt:
        typer.echo(f"stopped: {len(results)} of {len(workloads)} workloads measured", err=True)
        raise typer.Exit(130) from None


def _check_file(into: Path | None) -> None:
    """Raise ``UsageError`` for a file of ``--json`` that cannot be written."""
    if into is None:
        return
    folder = into.absolute().parent
    if into.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(f"--json: {into} cannot be written", hint="name a file in an existing folder")


def _benchmarks(module: str) -> Any:
    """Import a module of the repository's benchmarks, which are not part of the installed package."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(f"benchmarks.{module}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "benchmarks":
            raise
        raise WatersmeetError(
            "there are no benchmarks here", hint="run this command in the folder of the repository"
        ) from None
    finally:
        sys.path.pop(0)
