"""What Spark's stateful operator does with the frames of a bucket: one step, with the worker's own working sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import pandas as pd
import pyarrow as pa

from watersmeet.engine.frames import FRAME_SCHEMA, Frame
from watersmeet.engine.host import process
from watersmeet.engine.specs import OperatorSpec
from watersmeet.runtime.exchange import Exchange
from watersmeet.runtime.hot_key_files import HotKeyFiles
from watersmeet.runtime.worker_memory import give_back
from watersmeet.state.local_copies import LocalCopies
from watersmeet.state.store import Store
from watersmeet.state.working_sets import WorkingSets


@cache
def working_sets(most_bytes: int, memory_limit: str | None) -> WorkingSets:
    """The working sets of this worker process, one collection for each pair of limits: workers outlive queries."""
    return WorkingSets(most_bytes=most_bytes, memory_limit=memory_limit)


@dataclass(frozen=True, slots=True)
class HostedOperator:
    """One operator of a query; ``run`` tells one run of it from another, so that cached state is never mixed up.

    ``folder`` is that of the run, where workers of one machine leave segments for each other.
    """

    spec: OperatorSpec
    run: str
    cache_bytes: int
    memory_limit: str | None
    folder: str
    exchange: Exchange
    hot_keys: HotKeyFiles | None

    def step(self, bucket: int, chunks: Iterable[pd.DataFrame], store: Store) -> Iterator[pd.DataFrame]:
        """Take one step of one bucket."""
        frames = (frame for chunk in chunks for frame in self._received(chunk))
        sets = working_sets(self.cache_bytes, self.memory_limit)
        working_set = sets.get(self.run, self.spec.name, str(bucket))
        copies = LocalCopies(self.folder, f"{self.spec.name}-{bucket}")
        sent = process(self.spec, bucket, frames, store, working_set, copies, self.hot_keys)
        sets.trim()
        frames = self.exchange.send(sent).to_pandas()
        del sent
        give_back()
        return iter([frames])

    def _received(self, chunk: pd.DataFrame) -> Iterator[Frame]:
        return self.exchange.receive(pa.RecordBatch.from_pandas(chunk, schema=FRAME_SCHEMA, preserve_index=False))
