"""Starts a session from the command line, in the background, and keeps the JVM's output off the terminal."""

from __future__ import annotations

import gc
import os
import re
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from io import TextIOWrapper
from logging import Formatter, LogRecord
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import typer

from watersmeet.cli.interrupt import ending_at_once
from watersmeet.cli.parameters import WorkspaceName, local_folder, make_workspace
from watersmeet.cli.private_files import open_private
from watersmeet.cli.rows import show_changes
from watersmeet.errors import LostProcessError, WatersmeetError

if TYPE_CHECKING:
    from watersmeet.session.session import Session

LOG_NAME = "spark.log"
_LOG_BYTES = 1_000_000
_SHOWN_LINES = 8
_WAIT_FOR_LINES_SECONDS = 1.0
# PySpark's workers print this, between blank lines, at every batch.
_CHATTER = re.compile(r"\s*$|(Starting )?Streaming TransformWithStateInPandas Python worker")
# Java stack traces do not help users find out, for example, which Java to install.
_STACK = re.compile(r"\s+at |\s+\.\.\. ")


def session_for(
    text: str,
    workspace: WorkspaceName,
    packages: Sequence[str] | None,
    master: str | None,
    *,
    bounded: bool = False,
    real_time: bool = False,
) -> AbstractContextManager[Session]:
    """Return a session, as ``session_of`` does, on the Spark that suits a job."""
    from watersmeet.cli.spark_for import spark_for
    from watersmeet.sql.parse import parse

    where, config = spark_for(parse(text), master, workspace, bounded=bounded, real_time=real_time)
    return session_of(workspace, packages or (), where, config)


@contextmanager
def session_of(
    workspace: WorkspaceName,
    packages: Sequence[str] = (),
    master: str | None = None,
    config: Mapping[str, str] | None = None,
) -> Iterator[Session]:
    """Yield a session, and stop its queries at the end, but not after a ``KeyboardInterrupt``.

    Spark ends with this process: to stop it first takes most of a second.  Raises ``WatersmeetError`` if Spark has
    ended by itself.
    """
    session = start_session(workspace, packages, master, config)
    from py4j.protocol import Py4JNetworkError  # not while another thread imports it

    try:
        try:
            yield session
        except KeyboardInterrupt:
            raise
        except BaseException:
            session.stop()
            raise
        else:
            session.stop()
    except (ConnectionRefusedError, ConnectionResetError, Py4JNetworkError):
        raise LostProcessError(
            "Spark has ended, and its queries with it",
            hint=f"was there too little memory? {local_folder(workspace) / LOG_NAME} may say more; "
            "the same command resumes them",
        ) from None


def start_session(
    workspace: WorkspaceName,
    packages: Sequence[str] = (),
    master: str | None = None,
    config: Mapping[str, str] | None = None,
) -> Session:
    """Start Spark and a session on it that prints rows with ``show_changes``; raises like ``SparkStart``."""
    return SparkStart(workspace, packages, master, config).session()


def stop_session(session: Session) -> None:
    """Stop a session's queries and its Spark."""
    session.stop()
    session.spark.stop()


class _Settings(TypedDict):
    """The settings of a new Spark."""

    packages: Sequence[str]
    master: str | None
    config: Mapping[str, str] | None


class SparkStart:
    """Spark as it starts, and a session on it, in a thread; what the JVM prints goes to a log in the local folder.

    With ``record`` the JVM writes an archive of its classes to that path when it ends.

    Raises ``ConfigError`` and ``CatalogError`` for a workspace that cannot be used.
    """

    def __init__(
        self,
        workspace: WorkspaceName,
        packages: Sequence[str] = (),
        master: str | None = None,
        config: Mapping[str, str] | None = None,
        record: Path | None = None,
    ) -> None:
        from watersmeet.catalog.catalog import Catalog

        make_workspace(local_folder(workspace))
        if isinstance(workspace, Path):
            Catalog(workspace).streams()  # reports a damaged catalog before Spark starts
        self._workspace = workspace
        self._settings = _Settings(packages=packages, master=master, config=config)
        self._record = record
        self._is_abandoned = self._is_taken = False
        self._log, self._starting = self._begin()

    def session(self) -> Session:
        """Wait for the session, which prints rows with ``show_changes``.

        Raises ``WatersmeetError`` with the last lines of Spark's log if Spark does not start; the next call starts it
        again.
        """
        if self._starting.done() and self._starting.exception() is not None:
            self._log, self._starting = self._begin()
        if not self._starting.done():
            typer.echo("starting Spark …", err=True)
        try:
            with ending_at_once():
                session = self._starting.result()
        except WatersmeetError as error:
            error.detail = error.detail or self._log.last_lines() or None
            raise
        session.show = show_changes
        self._is_taken = True
        return session

    def abandon(self) -> None:
        """Stop Spark unless a session was taken.  A JVM that is starting ends with this process, which waits for it."""
        self._is_abandoned = not self._is_taken
        if self._is_abandoned and self._starting.done() and self._starting.exception() is None:
            stop_session(self._starting.result())

    def _begin(self) -> tuple[_Log, Future[Session]]:
        log = _Log(local_folder(self._workspace) / LOG_NAME)
        pool = ThreadPoolExecutor(1, "watersmeet-start")
        starting = pool.submit(self._connect, log)
        pool.shutdown(wait=False)
        return log, starting

    def _connect(self, log: _Log) -> Session:
        from watersmeet.session.spark import launch_jvm  # quick; the rest is imported while the JVM starts

        def launch() -> None:
            with log.taking_output() as output:
                launch_jvm(**self._settings, record=self._record, output=output)

        with ThreadPoolExecutor(1) as pool:
            launching = pool.submit(launch)
            gc.disable()  # collections find nothing among what is imported, and take a tenth of its time
            try:
                from watersmeet.session.session import connect
            finally:
                gc.enable()
            launching.result()
        if self._is_abandoned:
            raise WatersmeetError("Spark's start was abandoned")
        session = connect(workspace=self._workspace, **self._settings)
        if self._is_abandoned:
            stop_session(session)
        return session


class _File(RotatingFileHandler):
    """A log file for its owner alone.  On a full disk it drops lines: an error on standard error would be logged."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, errors=self.errors, opener=open_private)

    def handleError(self, record: LogRecord) -> None:  # noqa: N802 - logging calls it so
        """Ignore the error."""


class _Log:
    """The output of the JVM and its workers, read from a pipe, so that the log of a long run is bounded."""

    def __init__(self, path: Path) -> None:
        self._file = _File(path, maxBytes=_LOG_BYTES, backupCount=1, encoding="utf-8", delay=True)
        self._file.setFormatter(Formatter("%(message)s"))
        self._last: deque[str] = deque(maxlen=_SHOWN_LINES)
        reading, self._writing = os.pipe()
        self._thread = threading.Thread(target=self._read, args=(reading,), name="watersmeet-spark-log", daemon=True)
        self._thread.start()

    @contextmanager
    def taking_output(self) -> Iterator[int]:
        """Yield the descriptor to which processes print that are started meanwhile."""
        try:
            yield self._writing
        finally:
            os.close(self._writing)

    def last_lines(self) -> str:
        """Return the last lines, without stack traces."""
        # A JVM that failed to start has closed the pipe, but its output may not have been read yet.
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
