"""The command ``watersmeet``.

Results (rows, plans, test reports) go to standard output, messages about the run to standard error.  Each command
imports the slow modules that it needs (Spark, DuckDB, the shell).
"""

from __future__ import annotations

import errno
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from watersmeet.cli.bench import bench
from watersmeet.cli.checkpoint import app as checkpoint
from watersmeet.cli.demo import demo
from watersmeet.cli.explain import explain
from watersmeet.cli.parameters import UsageError
from watersmeet.cli.prepare import prepare
from watersmeet.cli.replace import replace
from watersmeet.cli.rescale import rescale
from watersmeet.cli.run import run
from watersmeet.cli.shell import shell
from watersmeet.cli.state import state
from watersmeet.cli.test import run_tests
from watersmeet.errors import WatersmeetError


class _Commands(TyperGroup):
    """The commands; prints errors of the user or the machine as text and exits with a code."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command.  typer handles Ctrl-C and exits with 130."""
        try:
            return super().invoke(ctx)
        except WatersmeetError as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(2 if isinstance(error, UsageError) else 1) from None
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # the reader of the output has closed it: typer exits silently
            typer.echo(": ".join(str(part) for part in (error.filename, error.strerror) if part), err=True)
            raise typer.Exit(1) from None


app = typer.Typer(
    name="watersmeet",
    cls=_Commands,
    help="Streaming SQL joins for PySpark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run)
app.command("sql")(shell)
app.command("explain")(explain)
app.command("rescale")(rescale)
app.command("replace")(replace)
app.add_typer(checkpoint, name="checkpoint")
app.command("state")(state)
app.command("test")(run_tests)
app.command("demo")(demo)
app.command("bench")(bench)
app.command("prepare")(prepare)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"watersmeet {version('watersmeet')}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Streaming SQL joins for PySpark."""


def main() -> None:
    """Run the command line: exit with 0 on success, 1 on an error, 2 on wrong usage, 130 after Ctrl-C."""
    app()
