"""Retries of queries to external tables that cannot be reached."""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from watersmeet.lookup.source import UnavailableError

_log = logging.getLogger(__name__)
T = TypeVar("T")


class OnError(Enum):
    """What happens to rows when the table cannot be reached after the last retry."""

    FAIL = "fail"
    NULL = "null"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """``max_retries`` more attempts after the first (RETRY: any number). Pauses double, up to ``longest_pause``."""

    max_retries: int = 3
    on_error: OnError = OnError.FAIL
    first_pause: float = 0.2
    longest_pause: float = 10.0

    def pauses(self) -> Iterator[float]:
        """Return the seconds between attempts. Half of each is random, so that workers do not retry all at once."""
        retries = itertools.count() if self.on_error is OnError.RETRY else iter(range(self.max_retries))
        for number in retries:
            pause = min(self.longest_pause, self.first_pause * 2 ** min(number, 30))
            yield pause * random.uniform(0.5, 1.0)


def with_retries(
    attempt: Callable[[], T], policy: RetryPolicy, table: str, sleep: Callable[[float], None] = time.sleep
) -> T:
    """Return the result of ``attempt``, and retry it while it raises ``UnavailableError``. Raise the last error.

    A pause ends early only with the process: Spark kills the workers of a task that is stopped.
    """
    pauses = policy.pauses()
    while True:
        try:
            return attempt()
        except UnavailableError as error:
            pause = next(pauses, None)
            if pause is None:
                raise
            _log.warning("the lookup in table %s failed and is retried in %.1f s: %s", table, pause, error)
            sleep(pause)
