"""The results of one micro-batch, as a DataFrame for each query."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame

OfQuery = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, slots=True)
class BatchResults:
    """How the frame of a batch becomes the results of each query; without ``of_queries`` there is only one."""

    of_queries: Sequence[OfQuery] = ()

    @contextmanager
    def split(self, frame: DataFrame) -> Iterator[list[DataFrame]]:
        """The results of each query.  Each is written by an action of its own; persisted, they come from one step."""
        if not self.of_queries:
            yield [frame]
            return
        frame.persist()
        try:
            yield [of_query(frame) for of_query in self.of_queries]
        finally:
            frame.unpersist()
