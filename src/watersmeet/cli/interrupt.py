"""Ctrl-C as a request that commands check between two steps.

PySpark's own handler cancels all jobs and raises an exception in the main thread.  A query would then fail instead of
stopping, and an interrupted call into the JVM leaves its connection half read.  So commands wait in short intervals,
check for a request, and stop their queries themselves.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from watersmeet.cli.supervised import watch

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(slots=True)
class Interrupt:
    """Whether a signal has requested a stop, and which one."""

    signal_number: int = 0

    @property
    def asked(self) -> bool:
        """Whether a stop was requested."""
        return self.signal_number != 0

    @property
    def ends_spark(self) -> bool:
        """Whether Spark may have received the signal too: SIGTERM reaches all processes of a service."""
        return self.signal_number == signal.SIGTERM

    @property
    def exit_code(self) -> int:
        """The exit code that shells expect from a command ended by this signal."""
        return 128 + self.signal_number


@contextmanager
def interruptible(interrupt: Interrupt | None = None) -> Iterator[Interrupt]:
    """Turn Ctrl-C and SIGTERM into a request; a second signal raises ``KeyboardInterrupt``.

    The request is stored in ``interrupt``, or in a new one.  Outside the main thread, where Python handles no signals,
    there are no requests.
    """
    interrupt = interrupt or Interrupt()

    def ask(number: int, _: FrameType | None) -> None:
        if interrupt.asked:
            if number == signal.SIGTERM and watch() is not None:
                return  # a service's reaches all its processes, and the one that watches hands its own on
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
    """Let Ctrl-C and SIGTERM end the process at once, and restore the former handlers afterwards.

    For the start of Spark, which also installs its own handler for Ctrl-C.  An exception during the start would leave
    a JVM running for ever: PySpark would delete the file in which the JVM reports its port, and a JVM that cannot
    write that file does not notice that this process has ended.
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
