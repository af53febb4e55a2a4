"""``watersmeet bench``: the benchmarks of the repository, each beside Spark's own operator, and Flink where it is."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from watersmeet.cli.parameters import UsageError
from watersmeet.errors import WatersmeetError, did_you_mean


def bench(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME…]", help="Workloads (none: list them).")] = None,
    every: Annotated[bool, typer.Option("--all", help="All workloads.")] = False,
    alone: Annotated[bool, typer.Option("--alone", help="Without Spark's own operator.")] = False,
    flink: Annotated[Path | None, typer.Option(help="A Python with apache-flink.")] = None,
    flink_script: Annotated[Path | None, typer.Option(help="The script that runs Flink's joins.")] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Rows a side, in place of each workload's own.")] = None,
    into: Annotated[Path | None, typer.Option("--json", help="A file for all figures.")] = None,
) -> None:
    """Measure workloads, and print a table of each; figures are printed only if all results are right."""
    suite = _suite()
    known = list(suite.WORKLOADS)
    if names and every:
        raise UsageError("--all takes no names", hint=f"leave out --all to run {' '.join(names)} alone")
    if not names and not every:
        if alone or into is not None or rows is not None or flink is not None or flink_script is not None:
            raise UsageError("nothing says what to measure", hint="name workloads, or give --all")
        for workload in suite.WORKLOADS.values():
            typer.echo(f"{workload.name:12} {workload.title}")
        return
    for name in names or []:
        if name not in known:
            raise UsageError(f"there is no workload {name}", hint=did_you_mean(name, known))
    if (flink is None) != (flink_script is None):
        raise UsageError("--flink and --flink-script go together")
    if into is not None and not _is_writable(into):
        raise UsageError(f"--json: {into} cannot be written", hint="name a file in a folder that is there")
    try:
        workloads = [suite.workload_of(name, rows) for name in names or known]
        peer = suite.flink_of(flink, flink_script) if flink is not None else None
    except suite.BenchmarkError as error:
        raise UsageError(str(error)) from None
    _measure(suite, workloads, into, flink=peer, peers=not alone)


def _measure(suite: Any, workloads: list[Any], into: Path | None, **options: Any) -> None:
    """Tell each workload's figures as soon as there are some; those of earlier ones stay where a later one fails."""
    results: list[Any] = []
    try:
        for workload in workloads:
            results.append(suite.run(workload, progress=_tell_progress, **options))
            typer.echo(suite.markdown(results[-1]) + "\n")
            if into is not None:
                into.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    except suite.BenchmarkError as error:
        raise WatersmeetError(str(error)) from None
    except KeyboardInterrupt:
        typer.echo(f"stopped: {len(results)} of {len(workloads)} workloads measured", err=True)
        raise typer.Exit(130) from None


def _tell_progress(what: str) -> None:
    typer.echo(f"… {what}", err=True)


def _is_writable(path: Path) -> bool:
    folder = path.absolute().parent
    return not path.is_dir() and folder.is_dir() and os.access(folder, os.W_OK)


def _suite() -> Any:
    """The repository's package of benchmarks, which is not installed."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module("benchmarks.suite")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "benchmarks":
            raise
        raise WatersmeetError(
            "there are no benchmarks here", hint="they are in the repository: run this in its folder"
        ) from None
    finally:
        sys.path.pop(0)
