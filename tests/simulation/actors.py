"""Actors: what runs at the same time on a cluster, here one at a time and in an order that the simulation decides.

An actor is a function in a thread of its own.  It runs only between ``resume`` and the next ``pause`` that it comes to,
so nothing depends on how the machine schedules threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

_here = threading.local()
#: How long an actor may run until it pauses: it hangs if that passes.
_PATIENCE_SECONDS = 300.0


class Killed(BaseException):
    """Ends an actor wherever it is, as the end of its process does."""


class Actor:
    """A function that runs in steps; ``properties`` are those of its Spark task.

    When it has ended, ``result`` has what the function returned, or ``error`` what it raised.
    """

    def __init__(self, name: str, run: Callable[[], Any], properties: Mapping[str, str]) -> None:
        self.name = name
        self.properties = properties
        self.result: Any = None
        self.error: BaseException | None = None
        self.has_ended = False
        self._is_killed = False
        self._may_run, self._has_paused = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._main, args=(run,), name=name, daemon=True)
        self._thread.start()

    def resume(self) -> bool:
        """Let it run to its next pause, or to its end; return whether it has paused."""
        self._may_run.release()
        if not self._has_paused.acquire(timeout=_PATIENCE_SECONDS):
            raise TimeoutError(f"{self.name} has run for {_PATIENCE_SECONDS:.0f} s without a pause")
        return not self.has_ended

    def kill(self) -> None:
        """End it at the pause where it is."""
        self._is_killed = True
        while not self.has_ended:
            self.resume()
        self.error = None  # its traceback holds this actor, and all that it worked with

    def pause(self) -> None:
        """Wait until ``resume``; raises ``Killed`` if it is to end."""
        if not self._is_killed:
            self._has_paused.release()
            self._may_run.acquire()
        if self._is_killed:
            raise Killed

    def _main(self, run: Callable[[], Any]) -> None:
        _here.actor = self
        self._may_run.acquire()
        try:
            if self._is_killed:
                raise Killed
            self.result = run()
        except BaseException as error:  # noqa: BLE001  # the scheduler decides what it means
            self.error = error
        finally:
            self.has_ended = True
            self._has_paused.release()


def pause() -> None:
    """Let others run, if an actor calls this: it may be killed here."""
    if (actor := _actor()) is not None:
        actor.pause()


def task_property(name: str) -> str:
    """A property of the Spark task that runs."""
    actor = _actor()
    return "" if actor is None else actor.properties.get(name, "")


def _actor() -> Actor | None:
    return getattr(_here, "actor", None)
