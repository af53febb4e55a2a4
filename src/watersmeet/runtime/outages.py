"""How a query waits for another system that cannot be reached: a sink, a source, the store of its checkpoint."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

from watersmeet.errors import OutageError, SinkOutageError
from watersmeet.lookup.retry import OnError, RetryPolicy
from watersmeet.settings.durations import duration_text
from watersmeet.settings.query_settings import QuerySettings

_log = logging.getLogger(__name__)
_WITHOUT_END = RetryPolicy(on_error=OnError.RETRY)


class Outages:
    """The outages of one query.

    An outage begins with the first attempt that fails, and ends with one that succeeds.  The pauses between attempts
    double; the last attempt comes when the query's time is over.  ``clock`` and ``pause`` are for tests: ``pause``
    waits, at most so many seconds, and returns whether the query is to stop.
    """

    def __init__(
        self,
        name: str,
        settings: QuerySettings,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], bool] | None = None,
    ) -> None:
        self._name = name
        self._limits = {SinkOutageError: settings.sink_retry, OutageError: settings.source_retry}
        self._clock = clock
        self._stopped = threading.Event()
        self._pause = pause or self._stopped.wait
        self._since: float | None = None
        self._attempts = 0
        self._pauses: Iterator[float] = iter(())
        self._kind: type[OutageError] = OutageError
        self._limit = 0.0
        self._said = ""
        self._given_up: OutageError | None = None
        self._runs_again = False
        self._lock = threading.Lock()  # the thread that writes batches waits too

    @property
    def waiting(self) -> str:
        """What the query waits for, how often it has tried, and for how long; empty if it does not wait."""
        said, since = self._said, self._since
        if not said or since is None:
            return ""
        return f"{said}, {self._clock() - since:.0f} s of {duration_text(self._limit)})"

    def stop(self) -> None:
        """End a pause, and all later ones: the query is to stop."""
        self._stopped.set()

    def tried(self, attempt: Callable[[], None]) -> None:
        """Call ``attempt`` until it does not raise ``SinkOutageError``; raises as ``wait`` does."""
        while True:
            try:
                attempt()
            except SinkOutageError as error:
                self.wait(error)
            else:
                with self._lock:
                    return self._go_on()

    def wait(self, error: OutageError) -> None:
        """Wait until the next attempt.

        Raises ``error`` itself if the query does not wait or is to stop, else an error that says how long it has tried.
        """
        if error is self._given_up:
            raise error
        with self._lock:
            self._runs_again = False
            if self._since is None:
                self._since, self._attempts, self._pauses = self._clock(), 0, _WITHOUT_END.pauses()
                self._kind = type(error)  # and stays: one broker may be both source and sink
                self._limit = self._limits[self._kind]
            self._attempts += 1
            tried = self._clock() - self._since
            if tried >= self._limit:
                self._given_up = self._last_word(error, tried)
                self._end()
                raise self._given_up
            self._said = f"{error.waiting} (attempt {self._attempts}"
        _log.warning("%s: %s", self._name, self.waiting)
        if self._pause(min(next(self._pauses), self._limit - tried)):
            raise error

    def reached(self) -> None:
        """Note that a run begins, as systems answer again; whether what failed succeeds is not known yet."""
        with self._lock:
            self._said, self._runs_again = "", True

    def has_run(self) -> None:
        """Note that a run has come further, and with it the end of an outage after which it began."""
        with self._lock:
            if self._runs_again:
                self._go_on()

    def _go_on(self) -> None:
        if self._since is not None:
            _log.warning("%s: goes on after %.0f s", self._name, self._clock() - self._since)
        self._end()

    def _end(self) -> None:
        self._since, self._said, self._runs_again = None, "", False

    def _last_word(self, error: OutageError, tried: float) -> OutageError:
        """The error to report when the time is over."""
        if self._attempts == 1:
            return error
        setting = "sink_retry" if self._kind is SinkOutageError else "source_retry"
        longer = duration_text(max(600, 2 * self._limit))
        return self._kind(
            f"{error.message}; query {self._name} has tried {self._attempts} times in {tried:.0f} s",
            detail=error.detail,
            hint="nothing is lost: run it again once the cause is gone, and it goes on where it stopped; "
            f"SETTINGS {setting} = '{longer}' waits longer",
            waits_for=error.waits_for,
        )
