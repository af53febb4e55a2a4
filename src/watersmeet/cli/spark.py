"""Starting a session from the command line, with the noise of the JVM kept off the terminal."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from logging import Formatter, LogRecord
from logging.handlers import RotatingFileHandler
from pathlib import Path
from socketserver import BaseServer
from typing import TYPE_CHECKING, Any

import typer

from watersmeet.cli.interrupt import ending_at_once
from watersmeet.cli.parameters import make_workspace
from watersmeet.cli.private_files import open_private
from watersmeet.cli.rows import show_changes
from watersmeet.errors import WatersmeetError

if TYPE_CHECKING:
    from watersmeet.session.session import Session

LOG_NAME = "spark.log"
_LOG_BYTES = 1_000_000
_SHOWN_LINES = 8
_WAIT_FOR_LINES_SECONDS = 1.0
# PySpark's workers say so, between blank lines, at every batch.
_CHATTER = re.compile(r"\s*$|(Starting )?Streaming TransformWithStateInPandas Python worker")
# A Java stack is of no use to whoever only wants to know which Java to install.
_STACK = re.compile(r"\s+at |\s+\.\.\. ")


@contextmanager
def session_of(
    workspace: Path, packages: Sequence[str] = (), master: str | None = None, config: Mapping[str, str] | None = None
) -> Iterator[Session]:
    """A session that is stopped at the end, and its Spark with it.

    Where Ctrl-C breaks in, nothing is waited for: Spark ends with this process.  ``WatersmeetError`` where Spark has
    ended before.
    """
    from py4j.protocol import Py4JNetworkError

    session = start_session(workspace, packages, master, config)
    try:
        try:
            yield session
        except KeyboardInterrupt:
            raise
        except BaseException:
            stop_session(session)
            raise
        else:
            stop_session(session)
    except (ConnectionRefusedError, ConnectionResetError, Py4JNetworkError):
        raise WatersmeetError(
            "Spark has ended, and its queries with it",
            hint=f"was there too little memory? {workspace / LOG_NAME} may say more; the same command resumes them",
        ) from None


def start_session(
    workspace: Path, packages: Sequence[str] = (), master: str | None = None, config: Mapping[str, str] | None = None
) -> Session:
    """Start Spark and a session on it, whose printed rows look as ``show_changes`` prints them.

    Raises ``ConfigError`` and ``CatalogError`` for a workspace that cannot be used, ``WatersmeetError`` with the last
    lines of Spark's log where Spark does not start.
    """
    from watersmeet.catalog.catalog import Catalog

    make_workspace(workspace)
    Catalog(workspace).streams()  # what is wrong with it shows at once, not after Spark has started
    with quiet_start(workspace):
        import watersmeet

        session = watersmeet.connect(workspace=workspace, packages=packages, master=master, config=config)
    session.show = show_changes
    logging.getLogger().addFilter(_is_of_use)
    _keep_back_traces(session.spark.sparkContext._accumulatorServer)
    return session


def stop_session(session: Session) -> None:
    """Stop a session's queries and its Spark."""
    session.stop()
    session.spark.stop()


@contextmanager
def quiet_start(workspace: Path) -> Iterator[None]:
    """Say that Spark starts, and send what the JVM says from now on into a log in the workspace.

    A Spark session must be started within.  An error raised meanwhile gets the last lines of that log as its detail.
    """
    typer.echo("starting Spark …", err=True)
    log = _Log(workspace / LOG_NAME)
    try:
        with ending_at_once(), log.taking_output():
            yield
    except WatersmeetError as error:
        error.detail = error.detail or log.last_lines() or None
        raise


def _keep_back_traces(server: BaseServer) -> None:
    """Of PySpark's server to which the JVM reports: that the JVM has ended is told elsewhere, and in a sentence."""
    tell = server.handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            tell(request, client_address)

    server.handle_error = handle_error  # type: ignore[method-assign]


def _is_of_use(record: LogRecord) -> bool:
    """Keep back the stack traces that py4j logs where one of its calls is broken off, by Ctrl-C or the JVM's end."""
    return not (record.exc_info and record.module == "java_gateway")


class _File(RotatingFileHandler):
    """A log file for its owner alone.  On a full disk it drops lines: an error on standard error would be logged."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, self.mode, encoding=self.encoding, errors=self.errors, opener=open_private)

    def handleError(self, record: LogRecord) -> None:  # noqa: N802 - logging calls it so
        """Go on."""


class _Log:
    """What the JVM and the workers it starts say, read from a pipe, so that a long run's log has a bound."""

    def __init__(self, path: Path) -> None:
        self._file = _File(path, maxBytes=_LOG_BYTES, backupCount=1, encoding="utf-8", delay=True)
        self._file.setFormatter(Formatter("%(message)s"))
        self._last: deque[str] = deque(maxlen=_SHOWN_LINES)
        reading, self._writing = os.pipe()
        self._thread = threading.Thread(target=self._read, args=(reading,), name="watersmeet-spark-log", daemon=True)
        self._thread.start()

    @contextmanager
    def taking_output(self) -> Iterator[None]:
        """Standard output and error come here, also those of processes started meanwhile, which keep them."""
        sys.stdout.flush()
        sys.stderr.flush()
        kept = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
        for descriptor in kept:
            os.dup2(self._writing, descriptor)
        os.close(self._writing)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for descriptor, original in kept.items():
                os.dup2(original, descriptor)
                os.close(original)

    def last_lines(self) -> str:
        """The last lines that mean something to people."""
        # A JVM that did not start has closed its end of the pipe; what it said may still be on its way.
        self._thread.join(_WAIT_FOR_LINES_SECONDS)
        return "\n".join(self._last)

    def _read(self, reading: int) -> None:
        with open(reading, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if _CHATTER.match(line):
                    continue
                self._file.emit(LogRecord("spark", 0, "", 0, line.rstrip("\n"), None, None))
                if not _STACK.match(line):
                    self._last.append(line.rstrip("\n"))
        self._file.close()
