"""Stand-ins for a session and its queries: the commands are tested without Spark."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from watersmeet.errors import WatersmeetError
from watersmeet.runtime.query import QueryMode
from watersmeet.runtime.report import Report
from watersmeet.session.results import Result
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import Statement

REPORT = Report(
    batches=3,
    rows_in={"o": 1500, "p": 20},
    used={"o": 1000, "p": 20},
    filtered={"o": 400},
    late={"o": 90},
    quarantined={"o": 10},
    rows_out=77,
    state_rows=5,
    state_bytes=640,
    last_batch_ms=412,
)


@dataclass
class FakeQuery:
    """Ends after so many waits; ``on_wait`` is called in each."""

    name: str = "q"
    ends_after: int = 1
    error: WatersmeetError | None = None
    reported: Report = REPORT
    on_wait: Callable[[], None] = lambda: None
    checkpoint: str = "/checkpoints/q"
    waits: int = 0
    stopped: bool = False

    @property
    def is_active(self) -> bool:
        return not self.stopped and self.waits < self.ends_after

    def wait(self, timeout: float | None = None) -> bool:
        self.waits += 1
        self.on_wait()
        if self.is_active:
            return False
        if self.error is not None:
            raise self.error
        return True

    def stop(self) -> None:
        self.stopped = True

    def report(self) -> Report:
        return self.reported


class FakeSpark:
    """Knows whether it was stopped."""

    stopped = False

    def stop(self) -> None:
        self.stopped = True


@dataclass
class FakeSession:
    """Gives for each statement what ``answer`` says, and remembers what it was asked."""

    answer: Callable[[Statement], Result]
    calls: list[tuple[str, QueryMode, str | None]] = field(default_factory=list)
    spark: FakeSpark = field(default_factory=FakeSpark)
    stopped: bool = False
    show: Any = None
    on_stop: Callable[[], None] = lambda: None

    def run(self, text: str, mode: QueryMode = QueryMode.CONTINUOUS, checkpoint: str | None = None) -> Iterator[Result]:
        self.calls.append((text, mode, checkpoint))
        for statement in parse(text):
            yield self.answer(statement)

    def stop(self) -> None:
        self.stopped = True
        self.on_stop()


def press_ctrl_c() -> None:
    """As if the user had pressed Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)
