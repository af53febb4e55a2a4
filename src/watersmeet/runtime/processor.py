"""The stateful operator that Spark sees; the work is done by worker_tasks.py.

Spark calls ``handleInputRows`` once per bucket and batch, with all frames of that bucket.  The state is a ``MapState``
from names to bytes in Spark's state store, which Spark commits with the micro-batch.

This module must not import DuckDB, Arrow or pandas, and keeps its task pickled until the first step: at the start of
every query Spark unpickles the processor in a fresh process on the driver, only to ask which state it has, and these
imports take a second.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import MapState, TimerValues

    from watersmeet.runtime.worker_tasks import OperatorTask

#: The name of the state in Spark's state store.
STATE = "log"


class MapStateStore:
    """A store over Spark's map state."""

    def __init__(self, state: MapState) -> None:
        self._state = state

    def get(self, name: str) -> bytes | None:
        """Read a value."""
        value = self._state.getValue((name,))
        return None if value is None else bytes(value[0])

    def put(self, name: str, value: bytes) -> None:
        """Write a value."""
        self._state.updateValue((name,), (value,))

    def delete(self, name: str) -> None:
        """Delete a value."""
        self._state.removeKey((name,))


def open_store(handle: StatefulProcessorHandle) -> MapStateStore:
    """Open the state of an operator."""
    return MapStateStore(handle.getMapState(STATE, "name STRING", "value BINARY"))


class OperatorProcessor(StatefulProcessor):
    """Runs one operator in Spark's stateful operator."""

    def __init__(self, task: OperatorTask) -> None:
        self._pickled: bytes = pickle.dumps(task)
        self._task: OperatorTask | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._store = open_store(handle)

    def handleInputRows(  # type: ignore[override]  # the pandas variant passes no Row objects
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """Take one step of one bucket."""
        if self._task is None:
            self._task = pickle.loads(self._pickled)
        (bucket,) = key
        return self._task.step(int(bucket), rows, self._store)

    def close(self) -> None:
        """Do nothing: working sets outlive the task."""
