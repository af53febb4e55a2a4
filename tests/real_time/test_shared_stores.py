"""Queries that share stores, in buckets that stay open for an epoch: each epoch is given up once, and runs again."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.kernels.test_multi_way import Arrival, arrivals_of
from tests.kernels.test_shared_stores import STREAMS, Query, Run, connected, query_sets
from tests.real_time.epoch_harness import EpochHarness


@given(
    queries=query_sets(),
    delays=st.tuples(*[st.integers(0, 6)] * STREAMS),
    arrivals=arrivals_of(STREAMS),
    buckets=st.integers(1, 2),
    steps=st.integers(1, 3),
    data=st.data(),
)
def test_they_agree_with_nested_loops(
    queries: list[Query],
    delays: tuple[int, ...],
    arrivals: list[Arrival],
    buckets: int,
    steps: int,
    data: st.DataObject,
) -> None:
    assume(len(connected(queries)) == len(queries))
    with tempfile.TemporaryDirectory() as folder:
        run = Run(queries, delays, buckets, partial(EpochHarness, folder=Path(folder), steps=steps))
        while arrivals:
            size = data.draw(st.integers(1, len(arrivals)))
            run.step(arrivals[:size], restart=data.draw(st.booleans()))
            arrivals = arrivals[size:]
        run.end()
