"""The one place where Watersmeet meets Spark's stateful operator.

Spark calls ``handleInputRows`` once per bucket and batch with all frames of that bucket.  State is a ``MapState`` from
names to bytes in Spark's state store, committed with the micro-batch; the work is done by host.process.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from watersmeet.engine.frames import FRAME_SCHEMA, Frame
from watersmeet.engine.host import process
from watersmeet.engine.spec import OperatorSpec
from watersmeet.runtime.exchange import Exchange
from watersmeet.runtime.hot_key_files import HotKeyFiles
from watersmeet.state.local_copies import LocalCopies
from watersmeet.state.working_set import WorkingSets

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState, TimerValues


@cache
def working_sets(most_bytes: int, memory_limit: str | None) -> WorkingSets:
    """The working sets of this worker process, one collection for each pair of limits: workers outlive queries."""
    return WorkingSets(most_bytes=most_bytes, memory_limit=memory_limit)


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
    """Hosts one operator; ``run`` tells one run of a query from another, so that cached state is never mixed up.

    ``folder`` is that of the run, where workers of one machine leave segments for each other.
    """

    def __init__(
        self,
        spec: OperatorSpec,
        run: str,
        cache_bytes: int,
        memory_limit: str | None,
        folder: str,
        exchange: Exchange,
        hot_keys: HotKeyFiles | None,
    ) -> None:
        self._spec = spec
        self._run = run
        self._folder = folder
        self._exchange = exchange
        self._hot_keys = hot_keys
        self._cache_bytes = cache_bytes
        self._memory_limit = memory_limit

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._store = MapStateStore(handle.getMapState("log", "name STRING", "value BINARY"))

    def handleInputRows(  # type: ignore[override]  # the pandas variant of the operator never gives Row objects
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """Take one step of one bucket."""
        (bucket,) = key
        frames = [frame for chunk in rows for frame in self._received(chunk)]
        sets = working_sets(self._cache_bytes, self._memory_limit)
        working_set = sets.get(self._run, self._spec.name, str(bucket))
        copies = LocalCopies(self._folder, f"{self._spec.name}-{bucket}")
        sent = process(self._spec, int(bucket), frames, self._store, working_set, copies, self._hot_keys)
        sets.trim()
        return iter([self._exchange.send(sent).to_pandas()] if sent else [])

    def _received(self, chunk: pd.DataFrame) -> Iterator[Frame]:
        return self._exchange.receive(pa.RecordBatch.from_pandas(chunk, schema=FRAME_SCHEMA, preserve_index=False))

    def close(self) -> None:
        """Nothing to close: working sets outlive the task."""
