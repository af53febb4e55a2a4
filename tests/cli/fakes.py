"""Fakes of a session and its queries, to test the commands without Spark."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from watersmeet.errors import WatersmeetError
from watersmeet.runtime.query_mode import QueryMode
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
    rows_in_rate=38.0,
    last_batch_ms=412,
)


@dataclass
class FakeQuery:
    """A query that ends after a number of waits; each wait calls ``on_wait``."""

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
    """A Spark session that records whether it was stopped."""

    stopped = False

    def stop(self) -> None:
        self.stopped = True


@dataclass
class FakeSession:
    """A session that returns ``answer`` of each statement, and records its calls."""

    answer: Callable[[Statement], Result]
    calls: list[tuple[str, QueryMode, str | None]] = field(default_factory=list)
    spark: FakeSpark = field(default_factory=FakeSpark)
    stopped: bool = False
    show: Any = None
    on_stop: Callable[[], None] = lambda: None

    def run(
        self,
        text: str,
        mode: QueryMode = QueryMode.CONTINUOUS,
        checkpoint: str | None = None,
        *,
        real_time: bool = False,
    ) -> Iterator[Result]:
        self.calls.append((text, mode, checkpoint))
        for statement in parse(text):
            yield self.answer(statement)

    def stop(self) -> None:
        self.stopped = True
        self.on_stop()


def press_ctrl_c() -> None:
    """Send the signal of Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)
