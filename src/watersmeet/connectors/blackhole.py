"""The ``blackhole`` connector: computes results and drops them."""

from __future__ import annotations

from watersmeet.connectors.connector import SinkConnector, WriteBatch, Writing
from watersmeet.connectors.sink_changelogs import Changelogs


class BlackholeConnector(SinkConnector):
    """A sink that computes every row of a batch and drops it. It takes no options and every changelog."""

    name = "blackhole"
    changelogs = (Changelogs.ALWAYS,)

    def open_sink(self, writing: Writing) -> WriteBatch:
        """Return what drops a batch."""
        return lambda rows, batch_id, key: rows.write.format("noop").mode("overwrite").save()
