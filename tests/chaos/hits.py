"""A fault and what it did: a campaign injects it, and what it returns says what was hit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.chaos.driver import Ending
from tests.chaos.rig import Rig


@dataclass(slots=True)
class Hit:
    """One fault that has happened; ``endings`` are those of queries that it met and that run again."""

    what: str
    endings: list[Ending] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Fault:
    """A sort of fault.

    ``inject`` lets it happen and pass; None: there was nothing to hit.  ``times`` is how often in a round, and
    ``refuses`` whether a query may say that it cannot go on; else it must go on by itself, or where its driver was
    killed, once it is started again.  ``says`` is a pattern of what the query must say then.
    """

    name: str
    rigs: tuple[str, ...]
    inject: Callable[[Rig], Hit | None]
    times: int = 12
    refuses: bool = True
    says: str = ""


def until(seconds: float) -> Callable[[], bool]:
    """Whether so many seconds are over."""
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() > deadline
