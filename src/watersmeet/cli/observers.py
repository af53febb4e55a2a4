"""What shows a run to others, by its options: the screen or JSON lines, the live page, the export of metrics."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from watersmeet.cli.live import View
from watersmeet.cli.parameters import UsageError
from watersmeet.monitoring.access import TOKEN_VARIABLE, parse_address

if TYPE_CHECKING:
    from watersmeet.cli.json_log import JsonLog
    from watersmeet.cli.progress import Screen
    from watersmeet.runtime.query import RunningQuery
    from watersmeet.session.session import Session


class LogFormat(Enum):
    """What standard error consists of."""

    TEXT = "text"  # for people
    JSON = "json"  # an object a line, for programs


Ui = Annotated[bool, typer.Option("--ui", help="Show the queries on a live page, on this machine only.")]
UiAddress = Annotated[
    str | None,
    typer.Option(
        "--ui-address",
        metavar="HOST:PORT",
        help="Where the live page listens; on another host than this one it asks for a token.",
    ),
]
Otel = Annotated[
    bool,
    typer.Option("--otel", help="Send metrics by OpenTelemetry's protocol to where OTEL_EXPORTER_OTLP_ENDPOINT says."),
]
LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", help="Standard error: text for people, or one JSON object a line.")
]


class Observers:
    """The observers of one run."""

    def __init__(self, *, ui: bool, ui_address: str | None, otel: bool, log_format: LogFormat) -> None:
        self._has_page = ui or ui_address is not None
        self._address = ui_address
        self._otel = otel
        self._format = log_format
        self._log: JsonLog | None = None

    def check(self) -> None:
        """Raise ``ConfigError`` or ``UsageError`` for options that make no sense, before Spark starts."""
        address = parse_address(self._address)
        if self._log is not None and not address.is_loopback and TOKEN_VARIABLE not in os.environ:
            raise UsageError(
                "the live page's token would have to stand in the log",
                hint=f"set {TOKEN_VARIABLE}: with --log-format json no token is printed",
            )

    @property
    def words(self) -> list[str]:
        """The arguments that ask for the same."""
        words = ["--ui-address", self._address] if self._address is not None else ["--ui"] if self._has_page else []
        words += ["--otel"] if self._otel else []
        return words + (["--log-format", self._format.value] if self._format is not LogFormat.TEXT else [])

    @contextmanager
    def standard_error(self) -> Iterator[None]:
        """Let all that is written to standard error meanwhile, and the error that ends it, be lines of the log."""
        if self._format is LogFormat.TEXT:
            yield
            return
        from watersmeet.cli.json_log import json_lines

        with json_lines() as self._log:
            yield

    def open(self, session: Session) -> None:
        """Open the page and begin to send metrics, as asked for, and say so."""
        if self._has_page:
            url = session.ui(self._address).url
            typer.echo(f"live page: {url if self._log is None else url.partition('?')[0]}", err=True)
        if self._otel:
            typer.echo(f"metrics: sent to {session.otel().endpoint}", err=True)

    @contextmanager
    def screen(self, view: View, *, draws: bool = True) -> Iterator[Screen]:
        """Yield what shows progress; ``draws``: standard output may be drawn on."""
        from watersmeet.cli.progress import JsonLines, screen

        if self._log is None:
            with screen(view, draws=draws) as shown:
                yield shown
        else:
            yield JsonLines(self._log, view)

    def conclude(self, queries: Sequence[RunningQuery]) -> None:
        """Say how queries have ended, if there are any."""
        if self._log is not None:
            self._log.update(queries)
        else:
            from watersmeet.cli.progress import print_summary

            print_summary(queries)
