"""Executors are warmed up: those of a new session, and one that replaces a lost one.

    python -m tests.cluster.warm

prints the executors of each case, once the join has come to its end and they have completed tasks, then that the thread
has ended with Spark.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections.abc import Callable
from logging.handlers import BufferingHandler

from tests.cluster.faults import kill_executor
from tests.cluster.session import connect

_SECONDS = 120.0
_MOST_RECORDS = 1_000


def main() -> int:
    """Open a session, kill an executor, stop Spark; raises ``AssertionError`` if one of these takes too long."""
    said = BufferingHandler(_MOST_RECORDS)
    logger = logging.getLogger("watersmeet.session.warm_executors")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(said)
    session = connect("/tmp/workspace")
    listed = session.spark._jsparkSession.sparkContext().statusStore().executorList

    def warm() -> list[str]:
        found = [listed(False).apply(number) for number in range(listed(False).size())]
        joined = re.findall(r"executors (.+) are warm", "\n".join(record.getMessage() for record in said.buffer))
        return sorted(each.id() for each in found if each.completedTasks() and each.id() in " ".join(joined))

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
