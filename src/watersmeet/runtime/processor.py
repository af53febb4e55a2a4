"""The one place where Watersmeet meets Spark's stateful operator.

Spark calls ``handleInputRows`` once per bucket and batch with all frames of that bucket.  State is a ``MapState`` from
names to bytes in Spark's state store, committed with the micro-batch; the work is done by hosted_operator.py.

At the start of each query Spark makes the processor in a fresh process on the driver too, only to ask which state it
has.  So this module imports nothing that takes long, and what a step needs stays pickled until there is one: DuckDB,
Arrow and pandas together are a second's import.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import MapState, TimerValues

    from watersmeet.runtime.hosted_operator import HostedOperator


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
        """Take a value away."""
        self._state.removeKey((name,))


class OperatorProcessor(StatefulProcessor):
    """Hosts one operator."""

    def __init__(self, operator: HostedOperator) -> None:
        self._pickled: bytes = pickle.dumps(operator)
        self._operator: HostedOperator | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._store = MapStateStore(handle.getMapState("log", "name STRING", "value BINARY"))

    def handleInputRows(  # type: ignore[override]  # the pandas variant of the operator never gives Row objects
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """Take one step of one bucket."""
        if self._operator is None:
            self._operator = pickle.loads(self._pickled)
        (bucket,) = key
        return self._operator.step(int(bucket), rows, self._store)

    def close(self) -> None:
        """Nothing to close: working sets outlive the task."""
