"""``watersmeet bench latency``: how long a record takes from Kafka to its result in Kafka."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from watersmeet.cli.parameters import UsageError
from watersmeet.errors import WatersmeetError, did_you_mean

NAME = "latency"
TITLE = "from a record in Kafka to its result in Kafka, at several rates"


_OPTIONS = {
    "queries": "--query",
    "rates": "--rate",
    "engines": "--engine",
    "seconds": "--seconds",
    "warm_up": "--warm-up",
    "epoch": "--epoch",
}


@dataclass(frozen=True, slots=True)
class Options:
    """The options that only this benchmark has; None or empty: not given."""

    queries: Sequence[str] | None
    rates: Sequence[int] | None
    engines: Sequence[str] | None
    seconds: float | None
    warm_up: float | None
    epoch: float | None

    @property
    def given(self) -> dict[str, Any]:
        """The options that were given, by the names of their fields."""
        return {name: value for name in _OPTIONS if (value := getattr(self, name)) is not None and value != []}

    def refuse(self) -> None:
        """Raise ``UsageError`` if any was given: other workloads do not have them."""
        for name in self.given:
            raise UsageError(f"{_OPTIONS[name]} is an option of {NAME} alone", hint=f"watersmeet bench {NAME}")


def refuse_others(names: Sequence[str], options: Mapping[str, object]) -> None:
    """Raise ``UsageError`` for other workloads, and for options that only they have."""
    if set(names) != {NAME}:
        raise UsageError(f"{NAME} is measured by itself", hint="name the other workloads in another command")
    for option, value in options.items():
        if value:
            raise UsageError(f"{NAME} has no option {option}", hint="choose with --query, --rate and --engine")


def measure(suite: Any, options: Options, flink: Path | None, into: Path | None) -> None:
    """Print the figures of each measurement when it is done, and store all of them in the file ``into``."""
    for what, chosen, known in (
        ("query", options.queries, suite.QUERIES),
        ("engine", options.engines, suite.ENGINES),
    ):
        for name in chosen or ():
            if name not in known:
                raise UsageError(f"{NAME} has no {what} {name}", hint=did_you_mean(name, known))
    try:
        python = suite.flink_of(flink, None).python if flink is not None else None
    except suite.BenchmarkError as error:
        raise UsageError(str(error)) from None
    plan = suite.Plan(flink=python, **options.given)
    if not plan.measurements:
        hint = "Spark's own engines run inner alone, and flink needs --flink"
        raise UsageError("none of these engines runs any of these queries", hint=hint)
    _measure(suite, plan, into)


def _measure(suite: Any, plan: Any, into: Path | None) -> None:
    results: list[Any] = []
    try:
        typer.echo(suite.header())
        for found in suite.run(plan, print_progress):
            results.append(found)
            typer.echo(suite.row(found))
            if into is not None:
                into.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    except suite.BenchmarkError as error:
        raise WatersmeetError(str(error)) from None
    except KeyboardInterrupt:
        typer.echo(f"stopped: {len(results)} of {len(plan.measurements)} measurements are done", err=True)
        raise typer.Exit(130) from None
    if without := sum("problem" in found for found in results):
        raise WatersmeetError(f"{without} of {len(results)} measurements have no figures")


def print_progress(what: str) -> None:
    """Print what runs to standard error."""
    typer.echo(f"… {what}", err=True)
