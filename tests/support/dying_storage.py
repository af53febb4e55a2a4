"""Storage of a process that dies just before one of its writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import SparkSession

from watersmeet.runtime.storage import Storage

_WRITES = ("create_text", "write_text", "rename", "delete", "make_folder")
_MOST = 50


class Killed(BaseException):
    """What ends such a process; nothing may catch it."""


class DyingStorage(Storage):
    """It does ``writes`` writes, and then raises ``Killed``."""

    def __init__(self, spark: SparkSession, writes: int) -> None:
        super().__init__(spark)
        self.left = writes
        for name in _WRITES:
            setattr(self, name, self._counted(getattr(self, name)))

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def write(*arguments: Any) -> Any:
            if self.left == 0:
                raise Killed
            self.left -= 1
            return method(*arguments)

        return write


def deaths(spark: SparkSession, attempt: Callable[[Storage], object]) -> Iterator[int]:
    """Attempt the same with one more write each time, until one attempt survives; the number of writes comes out.

    The caller looks at what each attempt leaves.
    """
    for writes in range(_MOST):
        try:
            attempt(DyingStorage(spark, writes))
        except Killed:
            yield writes
        else:
            return
    raise AssertionError(f"the attempt needs more than {_MOST} writes")
