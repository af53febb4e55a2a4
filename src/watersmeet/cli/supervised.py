"""A job that another process watches over: it says how it has ended, and ends when that process does."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from watersmeet.errors import WatersmeetError

if TYPE_CHECKING:
    from watersmeet.runtime.query import RunningQuery

#: Holds a ``Watch`` as JSON.
VARIABLE = "WATERSMEET_SUPERVISED"


@dataclass(frozen=True, slots=True)
class Watch:
    """How a job reports.

    ``report`` is the file for its last word, ``lifeline`` the end of a pipe whose other end the watching process has.
    ``restarts`` is how many may follow each other.
    """

    report: str
    lifeline: int
    restarts: int

    def to_json(self) -> str:
        """The value of ``VARIABLE``."""
        return json.dumps([self.report, self.lifeline, self.restarts])


@cache
def watch() -> Watch | None:
    """How this process reports; None if none watches over it.  From the first call on, it ends with that process."""
    text = os.environ.pop(VARIABLE, None)
    if text is None:
        return None
    found = Watch(*json.loads(text))
    threading.Thread(target=_end_with, args=(found.lifeline,), name="watersmeet-lifeline", daemon=True).start()
    return found


@contextmanager
def reporting(queries: Sequence[RunningQuery]) -> Iterator[None]:
    """Report the error that the block raises, and what the queries have done."""
    watched = watch()
    try:
        yield
    except WatersmeetError as error:
        if watched is not None:
            batches = sum(query.report().batches for query in queries)
            word = {"kind": type(error).__name__, "message": str(error), "batches": batches}
            Path(watched.report).write_text(json.dumps(word))
        raise


def _end_with(lifeline: int) -> None:
    os.read(lifeline, 1)  # nothing ever comes: it returns when the other end is closed
    os.kill(os.getpid(), signal.SIGTERM)
