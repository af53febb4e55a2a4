"""Packing as a Spark task: rows of a source in, frames out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from watersmeet.engine.hot_keys import NO_ENTRY
from watersmeet.engine.pack import pack
from watersmeet.engine.specs import PackSpec
from watersmeet.runtime.exchange import Exchange
from watersmeet.runtime.hot_key_files import HotKeyFiles
from watersmeet.runtime.worker_memory import give_back


@dataclass(frozen=True, slots=True)
class Packer:
    """Packs rows of one source, by the hot keys of the batch, and sends them."""

    spec: PackSpec
    exchange: Exchange
    hot_keys: HotKeyFiles | None

    def pack(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Frames of the rows, as Spark takes them."""
        self.exchange.tidy()
        hot_keys = self.hot_keys.read() if self.hot_keys is not None else NO_ENTRY
        for frame in pack(batches, self.spec, hot_keys):
            yield self.exchange.send([frame])
        give_back()

    def without_numbers(self) -> Packer:
        """The same for rows each of which has a place of its own: none has to be told from others that share it."""
        return replace(self, spec=replace(self.spec, sequence=None))
