"""``watersmeet test``: runs cases of the test notation and reports differences."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from watersmeet.errors import ConfigError

if TYPE_CHECKING:
    from watersmeet.testing.notation import Case
    from watersmeet.testing.runner import Failure

# The number of cases that share one Spark query.  Measurements show that larger groups are slower.
_SPARK_GROUP = 2

Files = Annotated[list[Path], typer.Argument(metavar="FILE…", help="Files of cases (.wmt), or folders of them.")]
OnSpark = Annotated[bool, typer.Option("--spark", help="Run on Spark instead of the harness (needs Java; slow).")]
Restart = Annotated[bool, typer.Option("--restart", help="Restart from the checkpoint before every step.")]
Variants = Annotated[
    bool,
    typer.Option("--variants", help="Also run each case all at once, row by row, and with restarts."),
]


def run_tests(files: Files, spark: OnSpark = False, restart: Restart = False, variants: Variants = False) -> None:
    """Run the cases of test files and compare their changelogs; exit with 1 if any case fails."""
    cases = [(name, case) for each in read_all(files) for name, case in ways_to_run(each, restart, variants)]
    failed = 0
    began = perf_counter()
    with _outcomes([case for _, case in cases], spark) as outcomes:
        for (name, case), outcome in zip(cases, outcomes, strict=True):
            _report(name, case, outcome)
            failed += outcome is not None
    seconds = perf_counter() - began
    typer.echo(f"{len(cases) - failed} passed, {failed} failed in {seconds:.1f} s")
    if failed:
        raise typer.Exit(1)


def read_all(files: Iterable[Path]) -> list[Case]:
    """Return the cases of all files, in order; a folder means all case files in it.

    Raises ``ConfigError`` for a missing file, and ``NotationError`` for a file that does not follow the notation.
    """
    from watersmeet.testing.notation import SUFFIX, read_cases

    found: list[Case] = []
    for path in files:
        if not path.exists():
            raise ConfigError(f"there is no file {path}")
        members = sorted(path.rglob(f"*{SUFFIX}")) if path.is_dir() else [path]
        if not members:
            raise ConfigError(f"the folder {path} has no {SUFFIX} files")
        for member in members:
            found += read_cases(member)
    return found


def ways_to_run(case: Case, restart: bool, all_ways: bool) -> Iterator[tuple[str, Case]]:
    """Yield the requested variants of a case, each with a name, which is empty for the unchanged case."""
    from watersmeet.testing.regroup import variants, with_restarts

    if all_ways:
        for name, variant in variants(case):
            if "restarts" in name or not restart:
                yield name, variant
    elif restart and case.error is None:
        yield "restarts", with_restarts(case)
    else:
        yield "", case


def _report(name: str, case: Case, failure: Failure | None) -> None:
    """Print a line for the case, and below it the report of its failure."""
    title = f"{case.title} ({name})" if name else case.title
    mark = typer.style("ok  ", fg="green") if failure is None else typer.style("FAIL", fg="red", bold=True)
    line = case.line if failure is None else failure.line
    typer.echo(f"{mark} {case.path}:{line}: {title}")
    if failure is not None:
        for line_of_report in failure.report.splitlines():
            typer.echo(f"       {line_of_report}")


@contextmanager
def _outcomes(cases: Sequence[Case], spark: bool) -> Iterator[Iterator[Failure | None]]:
    """Yield the outcomes of running the cases one after the other; Spark stops when the context ends."""
    if not spark:
        yield map(_run_in_harness, cases)
        return
    from watersmeet.cli.spark import session_of
    from watersmeet.testing.spark_rig import run_group

    with (
        tempfile.TemporaryDirectory(prefix="watersmeet-test-", ignore_cleanup_errors=True) as folder,
        session_of(Path(folder)) as session,
    ):
        groups = (cases[start : start + _SPARK_GROUP] for start in range(0, len(cases), _SPARK_GROUP))
        yield (
            outcome
            for number, group in enumerate(groups)
            for outcome in run_group(session.spark, group, Path(folder) / str(number))
        )


def _run_in_harness(case: Case) -> Failure | None:
    from watersmeet.testing.runner import crash, run_case

    try:
        return run_case(case)
    except Exception as error:  # noqa: BLE001 - a crash in one case must not hide the results of others
        return crash(case, error)
