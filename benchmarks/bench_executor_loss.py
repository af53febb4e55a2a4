"""Measures by how much results are late when an executor is lost.

    python -m benchmarks.bench_executor_loss [EVERY...] [--workload NAME] [--rows N] [--buckets N] [SETTING=VALUE...]

Three executors of two tasks each, on hosts in namespaces of their own, which share one folder (tests/cluster).  Of each
stream N rows arrive every EVERY seconds, a batch takes what is there, and each executor is killed amid a batch, one
after the other.  A row's delay is its wait, from its arrival to the end of its batch, less the median wait.  What is
printed is the longest delay after each loss, up to the next one.  Every result is compared with DuckDB's
batch query.  Settings are Spark's.  Needs Linux that lets its user make namespaces.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.arguments import count, setting, workload_name
from benchmarks.scale.runs import on_cluster
from benchmarks.streams import streams_folder, write_streams
from benchmarks.workloads import WORKLOADS, Workload

_EVERY = (3.0, 5.0)
_EXECUTORS = 3
#: The arrivals after which an executor is lost, and how many there are after the last one.
_LOST_AFTER, _AFTERWARDS = (12, 20, 28), 8
#: The first arrival that counts for the median wait.
_COUNTED_FROM = 6


def measured(
    workload: Workload, every: Sequence[float], rows: int, buckets: int, settings: Mapping[str, str]
) -> Iterator[str]:
    """Measure each pace; yield the lines of a table."""
    yield "| every, s | rows a batch | median batch, s | batches of the losses, s | late, s | late, batches |"
    yield "|---|---|---|---|---|---|"
    arrivals = _LOST_AFTER[-1] + _AFTERWARDS
    workload = replace(workload, data=replace(workload.data, rows=rows * arrivals, files=arrivals))
    folder = write_streams(streams_folder(), workload.data)
    changed = [f"{name}={value}" for name, value in settings.items()]
    for pace in every:
        arguments = [str(buckets), str(pace), *map(str, _LOST_AFTER), *changed]
        found, _ = on_cluster("losing", workload, folder, arguments, executors=_EXECUTORS)
        if not all(found["killed"]) or len(found["killed"]) != len(_LOST_AFTER):
            raise SystemExit(f"processes that were killed of each executor: {found['killed']}")
        waits, lasted = _waits(found), [milliseconds / 1000 for milliseconds in found["batch_ms"]]
        usual = statistics.median(waits[_COUNTED_FROM:])
        ends = (*_LOST_AFTER[1:], arrivals)
        late = [max(waits[first:end]) - usual for first, end in zip(_LOST_AFTER, ends, strict=True)]
        of_losses = [lasted[_batch_of(found, first)] for first in _LOST_AFTER]
        yield (
            f"| {pace:g} | {workload.data.rows_a_batch:,} | {statistics.median(lasted):.1f} | {_listed(of_losses)} | "
            f"{_listed(late)} | {_listed(seconds / pace for seconds in late)} |"
        )


def _waits(found: Mapping[str, Any]) -> list[float]:
    """Return how long what arrived waited for the end of its batch."""
    ended = [began + lasted / 1000 for began, lasted in zip(found["began"], found["batch_ms"], strict=True)]
    return [ended[_batch_of(found, number)] - at for number, at in enumerate(found["arrived"])]


def _batch_of(found: Mapping[str, Any], arrival: int) -> int:
    """Return the first batch that began after an arrival."""
    return next(number for number, began in enumerate(found["began"]) if began >= found["arrived"][arrival])


def _listed(figures: Iterable[float]) -> str:
    return ", ".join(f"{each:.1f}" for each in figures)


def main() -> None:
    """Measure what the arguments say, and print a table."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("what", nargs="*", metavar="EVERY or SETTING=VALUE")
    arguments.add_argument("--workload", type=workload_name, default="inner", metavar="NAME")
    arguments.add_argument("--rows", type=count, default=200_000, help="rows of a stream that arrive at once")
    arguments.add_argument("--buckets", type=count, default=_EXECUTORS)
    options = arguments.parse_args()
    every = [float(each) for each in options.what if "=" not in each]
    settings = dict(setting(each).split("=", 1) for each in options.what if "=" in each)
    workload = WORKLOADS[options.workload]
    for line in measured(workload, every or _EVERY, options.rows, options.buckets, settings):
        print(line, flush=True)


if __name__ == "__main__":
    main()
