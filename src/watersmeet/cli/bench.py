"""``watersmeet bench``: the benchmarks of the repository, each beside Spark's own operator, and Flink where it is."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from watersmeet.cli.options import UsageError
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
    if not names and not every:
        for workload in suite.WORKLOADS.values():
            typer.echo(f"{workload.name:12} {workload.title}")
        return
    chosen = known if every else names or []
    for name in chosen:
        if name not in known:
            raise UsageError(f"there is no workload {name}", hint=did_you_mean(name, known))
    if (flink is None) != (flink_script is None):
        raise UsageError("--flink and --flink-script go together")
    peer = suite.Flink(flink, flink_script) if flink is not None else None
    try:
        results = suite.run_all(chosen, typer.echo, flink=peer, peers=not alone, rows=rows)
    except suite.BenchmarkError as error:
        raise WatersmeetError(f"no figures of {error}") from None
    if into is not None:
        into.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


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
