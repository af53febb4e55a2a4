"""``watersmeet test``: run cases of the test notation and say what differs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from watersmeet.errors import ConfigError

if TYPE_CHECKING:
    from watersmeet.testing.notation import Case
    from watersmeet.testing.runner import Failure, MakeBench

Files = Annotated[list[Path], typer.Argument(metavar="FILE…", help="Files of cases (.wmt), or folders of them.")]
OnSpark = Annotated[bool, typer.Option("--spark", help="Run on Spark (needs Java; slow) in place of the harness.")]
Restart = Annotated[bool, typer.Option("--restart", help="Restart from the checkpoint before every step.")]
Variants = Annotated[
    bool,
    typer.Option("--variants", help="Run each case also all at once, row by row, and with restarts."),
]


def run_tests(files: Files, spark: OnSpark = False, restart: Restart = False, variants: Variants = False) -> None:
    """Run the cases of test files, each with its expected changelog; exits 1 if any fails."""
    cases = [(name, case) for each in read_all(files) for name, case in ways_to_run(each, restart, variants)]
    with ExitStack() as stack:
        make_bench = _spark_bench(stack) if spark else _harness()
        began = perf_counter()
        failed = sum(not _report(name, case, make_bench) for name, case in cases)
    seconds = perf_counter() - began
    typer.echo(f"{len(cases) - failed} passed, {failed} failed in {seconds:.1f} s")
    if failed:
        raise typer.Exit(1)


def read_all(files: Iterable[Path]) -> list[Case]:
    """The cases of all files, in order; a folder stands for its case files.

    Raises ``ConfigError`` for what is not there, ``NotationError`` for a file that does not follow the notation.
    """
    from watersmeet.testing.notation import SUFFIX, read_cases

    found: list[Case] = []
    for path in files:
        if not path.exists():
            raise ConfigError(f"there is no file {path}")
        members = sorted(path.rglob(f"*{SUFFIX}")) if path.is_dir() else [path]
        if not members:
            raise ConfigError(f"the folder {path} holds no {SUFFIX} files")
        for member in members:
            found += read_cases(member)
    return found


def ways_to_run(case: Case, restart: bool, all_ways: bool) -> Iterator[tuple[str, Case]]:
    """The case in the ways asked for, each with a name, which is empty for the case as it is."""
    from watersmeet.testing.regroup import variants, with_restarts

    if all_ways:
        for name, variant in variants(case):
            if "restarts" in name or not restart:
                yield name, variant
    elif restart and case.error is None:
        yield "restarts", with_restarts(case)
    else:
        yield "", case


def _report(name: str, case: Case, make_bench: MakeBench) -> bool:
    """Run one case and print its line; whether it passed."""
    began = perf_counter()
    failure = _run(case, make_bench)
    milliseconds = (perf_counter() - began) * 1000
    title = f"{case.title} ({name})" if name else case.title
    mark = typer.style("ok  ", fg="green") if failure is None else typer.style("FAIL", fg="red", bold=True)
    line = case.line if failure is None else failure.line
    typer.echo(f"{mark} {case.path}:{line}: {title} [{milliseconds:.0f} ms]")
    if failure is not None:
        for told in failure.report.splitlines():
            typer.echo(f"       {told}")
    return failure is None


def _run(case: Case, make_bench: MakeBench) -> Failure | None:
    from watersmeet.testing.runner import Failure, run_case

    try:
        return run_case(case, make_bench)
    except Exception as error:  # noqa: BLE001 - one case that breaks the machine must not hide the others' results
        return Failure(case.line, f"broke off: {type(error).__name__}: {error}")


def _harness() -> MakeBench:
    from watersmeet.testing.harness import Harness

    return Harness


def _spark_bench(stack: ExitStack) -> MakeBench:
    """Benches on one Spark session, which ends with ``stack``, as does the folder of its checkpoints."""
    raise NotImplementedError
