"""``--log-format json``: standard error as JSON objects, one a line; docs/monitoring.md describes the fields."""

from __future__ import annotations

import errno
import io
import json
import logging
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

import typer

from watersmeet.cli.parameters import UsageError
from watersmeet.errors import WatersmeetError

if TYPE_CHECKING:
    from watersmeet.runtime.history import Committed
    from watersmeet.runtime.query import RunningQuery
    from watersmeet.runtime.status import QueryStatus


@dataclass(slots=True)
class _Seen:
    """What has been written of a query."""

    batches: int = 0
    failed_runs: int = 0
    waiting: str = ""
    has_ended: bool = False


class JsonLog:
    """Writes events as lines to a stream; each line is written as a whole, from whichever thread."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._seen: dict[str, _Seen] = {}

    def write(self, event: str, *, level: str = "info", at: float | None = None, **fields: Any) -> None:
        """Write an event, now or at another time; secrets that Watersmeet knows of are hidden."""
        from watersmeet.settings.secrets import hide

        moment = datetime.fromtimestamp(time.time() if at is None else at, UTC)
        told = {"time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"), "level": level}
        told |= {"event": event} | {
            name: hide(value) if isinstance(value, str) else value for name, value in fields.items()
        }
        with self._lock:
            self._stream.write(json.dumps(told, allow_nan=False) + "\n")
            self._stream.flush()

    def update(self, queries: Sequence[RunningQuery]) -> None:
        """Write what queries have done since the last call."""
        for query in queries:
            self._update(query.status())

    def _update(self, status: QueryStatus) -> None:
        name, history = status.name, status.history
        seen = self._seen.get(name)
        if seen is None:
            seen = self._seen[name] = _Seen()
            self.write(
                "started",
                at=history.started,
                query=name,
                mode=status.mode,
                real_time=status.is_real_time,
                targets=list(status.targets),
                checkpoint=status.checkpoint,
            )
        for batch in history.recent[max(len(history.recent) - (history.batches - seen.batches), 0) :]:
            self.write("batch", at=batch.ended, query=name, **_batch(batch))
        for failure in history.failures[max(len(history.failures) - (history.failed_runs - seen.failed_runs), 0) :]:
            level = "warning" if failure.went_on else "error"
            told = {"kind": failure.kind, "message": failure.message, "went_on": failure.went_on}
            self.write("failed", level=level, at=failure.time, query=name, **told)
        waiting = status.report.waiting.rpartition(",")[0]  # without the time, which always goes on
        if waiting and waiting != seen.waiting:
            self.write("waiting", level="warning", query=name, message=status.report.waiting)
        elif seen.waiting and not waiting and status.ended is None:
            self.write("resumed", query=name)
        seen.batches, seen.failed_runs, seen.waiting = history.batches, history.failed_runs, waiting
        if status.ended is not None and not seen.has_ended:
            seen.has_ended = True
            told = {"state": status.state.value, "seconds": round(status.ended - history.started, 3)}
            told |= {"batches": history.batches, "rows_out": history.rows_out}
            told |= {"state_rows": status.report.state_rows, "state_bytes": status.report.state_bytes}
            level = "error" if status.state == "failed" else "info"
            self.write("ended", level=level, at=status.ended, query=name, **told, totals=status.report.totals())


def _batch(batch: Committed) -> dict[str, Any]:
    return {
        "batch": batch.number,
        "seconds": batch.milliseconds / 1000,
        "rows_out": batch.rows_out,
        **batch.rows,
        "state_rows": batch.state_rows,
        "state_bytes": batch.state_bytes,
        "totals": dict(batch.totals),
    }


@contextmanager
def json_lines() -> Iterator[JsonLog]:
    """Let standard error be a log: what is written to it meanwhile is a message, warnings of ``logging`` are events.

    An error that ends the block is an event too, and becomes ``typer.Exit``.
    """
    before = sys.stderr
    log, root = JsonLog(before), logging.getLogger()
    handler = _Handler(log)
    sys.stderr = messages = _Messages(log)
    root.addHandler(handler)
    try:
        yield log
    except KeyboardInterrupt:
        log.write("error", level="error", kind="KeyboardInterrupt", message="stopped by a second signal")
        raise typer.Exit(130) from None
    except WatersmeetError as error:
        log.write("error", level="error", kind=type(error).__name__, message=str(error))
        raise typer.Exit(2 if isinstance(error, UsageError) else 1) from None
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            raise  # the reader of the output has closed it: typer exits silently
        text: dict[str, Any] = {} if isinstance(error, OSError) else {"traceback": traceback.format_exc()}
        log.write("error", level="error", kind=type(error).__name__, message=str(error), **text)
        raise typer.Exit(1) from None
    finally:
        messages.flush_line()
        root.removeHandler(handler)
        sys.stderr = before


class _Handler(logging.Handler):
    """Writes warnings and errors that modules log; outages are events of their query."""

    def __init__(self, log: JsonLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        from watersmeet.cli.progress import OUTAGES_LOG

        if record.name == OUTAGES_LOG:
            return
        try:
            text = self.format(record)
            self._log.write("log", level=record.levelname.lower(), logger=record.name, message=text)
        except Exception:  # noqa: BLE001 - as all handlers do: a record that cannot be written ends nothing
            self.handleError(record)


class _Messages(io.TextIOBase):
    """Standard error, whose lines become messages."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, log: JsonLog) -> None:
        self._log = log
        self._begun = ""
        self._lock = threading.Lock()

    def writable(self) -> bool:
        """It is written to."""
        return True

    def write(self, text: str) -> int:
        """Write the lines that are whole, and keep the rest."""
        if not isinstance(text, str):
            raise TypeError("standard error takes text")
        with self._lock:
            *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._say(line)
        return len(text)

    def flush_line(self) -> None:
        """Write a line that has no end."""
        with self._lock:
            line, self._begun = self._begun, ""
        self._say(line)

    def _say(self, line: str) -> None:
        if line.strip():
            self._log.write("message", message=line.rstrip())
