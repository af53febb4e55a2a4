"""``watersmeet bench seeds``: the targets of the document that the project grew from, and what is reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from watersmeet.cli.bench_latency import print_progress
from watersmeet.cli.parameters import UsageError
from watersmeet.errors import WatersmeetError

NAME = "seeds"
TITLE = "the targets that the project began with, and what is reached"


def refuse_others(names: Sequence[str], options: Mapping[str, object]) -> None:
    """Raise ``UsageError`` for other workloads, and for options: it has none."""
    if set(names) != {NAME}:
        raise UsageError(f"{NAME} is measured by itself", hint="name the other workloads in another command")
    for option, value in options.items():
        if value:
            raise UsageError(f"{NAME} has no option {option}", hint=f"watersmeet bench {NAME}")


def measure(seeds: Any) -> None:
    """Print each target when it has been measured; ends with code 1 if one was missed."""
    missed = 0
    typer.echo(seeds.HEADER)
    try:
        for target in seeds.run(print_progress):
            typer.echo(target.row)
            missed += not target.is_met
    except seeds.BenchmarkError as error:
        raise WatersmeetError(str(error)) from None
    if missed:
        raise WatersmeetError(f"{missed} targets were missed")
