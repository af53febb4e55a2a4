"""The stateful operator that fills the state store of a new checkpoint, in the one batch that does.

As processor.py, this module imports nothing slow before the first bucket comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from watersmeet.runtime.processor import open_store

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import TimerValues


class SeedProcessor(StatefulProcessor):
    """Writes what comes for a bucket to its store: names in ``part``, values in ``payload``."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._store = open_store(handle)

    def handleInputRows(  # type: ignore[override]  # the pandas variant passes no Row objects
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """Fill the store of one bucket; nothing is sent on."""
        from watersmeet.runtime.rescale.division import fill

        fill(self._store, (entry for chunk in rows for entry in zip(chunk["part"], chunk["payload"], strict=True)))
        return iter(())

    def close(self) -> None:
        """Do nothing."""
