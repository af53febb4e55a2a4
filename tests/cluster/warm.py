"""Executors are warm before a query runs: those of a new session, and one that replaces another.

    python -m tests.cluster.warm

prints a line for each of these, with the executors that have done tasks, and whether the session's thread has ended
with it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from tests.cluster.faults import kill_executor
from tests.cluster.session import connect

_SECONDS = 120.0


def main() -> int:
    """Open a session, kill an executor, close the session; return 1 if something has not come about."""
    session = connect("/tmp/workspace")
    listed = session.spark._jsparkSession.sparkContext().statusStore().executorList

    def warm() -> list[str]:
        found = [listed(False).apply(number) for number in range(listed(False).size())]
        return sorted(each.id() for each in found if each.completedTasks())

    _wait(lambda: len(warm()) == 2)
    print("of a new session:", *warm(), flush=True)
    kill_executor("executor1")
    _wait(lambda: "2" in warm())
    print("of one that replaces another:", *(each for each in warm() if each not in "01"), flush=True)
    session.spark.stop()
    _wait(lambda: not any(thread.name.startswith("watersmeet-warm") for thread in threading.enumerate()))
    print("the thread has ended", flush=True)
    return 0


def _wait(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < ends, f"not so after {_SECONDS:.0f} s"
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
