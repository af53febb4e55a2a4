"""Measures what the document that the project grew from asks for, and compares it with what was asked.

Its targets: a windowed join of two streams of 100,000 records makes more than 50,000 records a second with less than
500 MB and is exact; a single record takes less than 100 ms to its results on average, and less than 200 ms in 95 of 100
cases; several joins run at once (ten here).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks import concurrent_joins, suite
from benchmarks.latency import suite as latency
from benchmarks.streams import streams_folder
from benchmarks.suite import BenchmarkError

__all__ = ["HEADER", "BenchmarkError", "Target", "run"]

HEADER = "| what | target | reached | |\n|---|---|---|---|"
_JOIN, _RATE, _ROWS = "first_seed", 100, 100_000


@dataclass(frozen=True, slots=True)
class Target:
    """A figure that was asked for, and the one that was measured."""

    what: str
    target: str
    reached: str
    is_met: bool

    @property
    def row(self) -> str:
        """Its row in the table."""
        return f"| {self.what} | {self.target} | {self.reached} | {'met' if self.is_met else '**missed**'} |"


def run(progress: Callable[[str], None] = lambda what: None) -> Iterator[Target]:
    """Measure the targets one after the other; raises ``BenchmarkError`` if there is no figure, or results differ."""
    yield from _throughput(progress)
    yield from _latency(progress)
    yield from _concurrent(progress)


def _throughput(progress: Callable[[str], None]) -> Iterator[Target]:
    found = suite.run(suite.workload_of(_JOIN), peers=False, progress=progress)["engines"]["watersmeet"]
    rate, megabytes = found["rows_per_s"], found["worker_bytes"] / 1e6
    what = "inner join, ±5 minutes, 100,000 records a side"
    yield Target(f"{what}: records a second", "more than 50,000", f"{rate:,}", rate > 50_000)
    yield Target(f"{what}: all workers", "less than 500 MB", f"{megabytes:,.0f} MB", megabytes < 500)
    yield Target(f"{what}: results", "as DuckDB's batch query", "the same", is_met=True)  # otherwise there is an error


def _latency(progress: Callable[[str], None]) -> Iterator[Target]:
    plan = latency.Plan(queries=("inner",), rates=(_RATE,), engines=("real_time",))
    (found,) = latency.run(plan, progress)
    if "problem" in found:
        raise BenchmarkError(f"no figures of latency: {found['problem']}")
    (figures,) = found["latency_ms"].values()
    what = f"a record's results in real time, {_RATE} records a second and side"
    for name, figure, most in (("mean", "mean", 100), ("95 of 100", "p95", 200)):
        reached = figures[figure]
        yield Target(f"{what}: {name}", f"less than {most} ms", f"{reached:,.0f} ms", reached < most)


def _concurrent(progress: Callable[[str], None]) -> Iterator[Target]:
    progress(f"{concurrent_joins.JOINS} joins at once")
    command = [sys.executable, "-m", "benchmarks.concurrent_joins", str(_ROWS), str(streams_folder())]
    output = suite.output_of(command, "watersmeet", "concurrent_joins")
    found = json.loads(output.strip().splitlines()[-1])
    reached = f"{found['right']} exact, {found['rows_per_s']:,} records a second over all"
    yield Target("joins at once in one session", f"{found['joins']}, exact", reached, found["right"] == found["joins"])
