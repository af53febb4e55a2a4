"""The stateful operator that fills the state store of a new checkpoint, in the one batch that does.

As processor.py, this module imports nothing slow before the first bucket comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from watersmeet.runtime.processor import open_store

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import TimerValues


class SeedProcessor(StatefulProcessor):
    """Writes what comes for a bucket of a task's operators to its store: names in ``part``, values in ``payload``.

    ``input`` is the number of the operator; its names begin with the ``prefixes`` of that number in the store.
    """

    def __init__(self, prefixes: Sequence[str]) -> None:
        self._prefixes = prefixes

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._store = open_store(handle)

    def handleInputRows(  # type: ignore[override]  # the pandas variant passes no Row objects
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """Fill the store of one bucket; nothing is sent on."""
        from watersmeet.runtime.rescale.division import fill

        entries = (entry for chunk in rows for entry in chunk[["input", "part", "payload"]].itertuples(index=False))
        fill(self._store, entries, self._prefixes)
        return iter(())

    def close(self) -> None:
        """Do nothing."""
