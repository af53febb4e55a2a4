"""Ctrl-C as a request that is looked at between two steps.

PySpark's own handler cancels all jobs and raises wherever the main thread stands: a query would fail in place of
stopping, and a call into the JVM that is broken off leaves its connection half read.  So the commands wait in short
turns, look at the request in between, and stop their queries themselves.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(slots=True)
class Interrupt:
    """Whether a stop was asked for, and by which signal."""

    signal_number: int = 0

    @property
    def asked(self) -> bool:
        """Whether to stop."""
        return self.signal_number != 0

    @property
    def ends_spark(self) -> bool:
        """Whether Spark may have been asked to end as well: SIGTERM, which reaches all processes of a service."""
        return self.signal_number == signal.SIGTERM

    @property
    def exit_code(self) -> int:
        """The exit code that shells expect of a command ended by this signal."""
        return 128 + self.signal_number


@contextmanager
def interruptible(interrupt: Interrupt | None = None) -> Iterator[Interrupt]:
    """While this is open, Ctrl-C and SIGTERM only ask; a second one raises ``KeyboardInterrupt``.

    The request is noted in ``interrupt``, or in a new one.  Outside the main thread, where Python has no signals,
    nothing ever asks.
    """
    interrupt = interrupt or Interrupt()

    def ask(number: int, _: FrameType | None) -> None:
        if interrupt.asked:
            raise KeyboardInterrupt
        interrupt.signal_number = number

    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = {number: signal.signal(number, ask) for number in _SIGNALS}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ending_at_once() -> Iterator[None]:
    """While this is open, Ctrl-C and SIGTERM end the process at once; later the handlers from before are back.

    For the start of Spark, which also puts its own handler in the place of Ctrl-C's.  An exception raised in the
    middle of it would leave a JVM behind for ever: PySpark would take away the file in which the JVM is to write
    where it listens, and a JVM that cannot write it does not notice that we end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _end) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _: FrameType | None) -> None:
    os._exit(128 + number)
