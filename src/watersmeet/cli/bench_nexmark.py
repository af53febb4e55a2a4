"""``watersmeet bench nexmark``: queries over an auction's people, auctions and bids, beside Flink and Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from watersmeet.cli.bench_latency import print_progress
from watersmeet.cli.parameters import UsageError
from watersmeet.errors import WatersmeetError, did_you_mean

NAME = "nexmark"
TITLE = "the queries q0 to q23 of Nexmark, also with Flink and Spark"
_OPTIONS = {"events": "--events", "batches": "--batches", "engines": "--engines"}


@dataclass(frozen=True, slots=True)
class Options:
    """The options that only this benchmark has; None: not given.  ``engines`` are separated by commas."""

    events: int | None
    batches: int | None
    engines: str | None

    def refuse(self) -> None:
        """Raise ``UsageError`` if any was given: other workloads do not have them."""
        for name, option in _OPTIONS.items():
            if getattr(self, name) is not None:
                raise UsageError(f"{option} is an option of {NAME} alone", hint=f"watersmeet bench {NAME}")


def refuse_others(options: Mapping[str, object]) -> None:
    """Raise ``UsageError`` for options that only other workloads have."""
    for option, value in options.items():
        if value:
            raise UsageError(f"{NAME} has no option {option}", hint="choose with --events, --batches and --engines")


def measure(
    suite: Any, queries: Sequence[str], names: Sequence[str], options: Options, flink: Path | None, into: Path | None
) -> None:
    """Print the figures of each query when it is done, and store all of them in the file ``into``.

    ``names`` are those of the command, ``queries`` all that there are.
    """
    chosen = [name for name in names if name != NAME]
    for name in chosen:
        if name not in queries:
            raise UsageError(f"{NAME} has no query {name}", hint=did_you_mean(name, queries))
    engines = _engines(suite, options.engines, flink)
    try:
        python = suite.flink_of(flink, None).python if flink is not None else None
        events = suite.EVENTS if options.events is None else options.events
        batches = suite.BATCHES if options.batches is None else options.batches
        plan = suite.plan_of(chosen or queries, engines, events, batches, python)
    except suite.BenchmarkError as error:
        raise UsageError(str(error)) from None
    _measure(suite, plan, into)


def _engines(suite: Any, given: str | None, flink: Path | None) -> list[str]:
    if given is None:
        return [name for name in suite.ENGINES if name != "flink" or flink is not None]
    found = [name.strip() for name in given.split(",")]
    for name in found:
        if name not in suite.ENGINES:
            raise UsageError(f"{NAME} has no engine {name}", hint=did_you_mean(name, suite.ENGINES))
    if ("flink" in found) != (flink is not None):
        raise UsageError(
            "the engine flink and --flink must be used together", hint="--flink names a Python that has it"
        )
    return found


def _measure(suite: Any, plan: Any, into: Path | None) -> None:
    results: list[Any] = []
    try:
        for found in suite.run(plan, print_progress):
            if not results:
                typer.echo(suite.header())
            results.append(found)
            typer.echo(suite.rows(found))
            if into is not None:
                into.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    except suite.BenchmarkError as error:
        raise WatersmeetError(str(error)) from None
    except KeyboardInterrupt:
        typer.echo(f"stopped: {len(results)} of {len(plan.names)} queries measured", err=True)
        raise typer.Exit(130) from None
