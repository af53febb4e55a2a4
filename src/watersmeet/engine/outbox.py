"""The outbox: the frames that a step sends on, to the next operator or to the end of the query."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIME
from watersmeet.engine.frames import Frame, counter_frame, mark_frame, passed_on, row_frames, side_frames
from watersmeet.engine.routing import home_indexes, key_hashes, split_by_bucket
from watersmeet.engine.specs import OperatorSpec
from watersmeet.engine.step_times import STEP_TIME
from watersmeet.kernels.api import FOREVER, GONE, NEVER
from watersmeet.state.manifest import EVERY, Manifest
from watersmeet.state.working_set import WorkingSet

#: The counter of an input's frontier is ``OPERATOR.input_frontier.LABEL``.
INPUT_FRONTIER = "input_frontier"


@dataclass(frozen=True, slots=True)
class Outbox:
    """What a step sends on: its results by the number of their query, then other frames."""

    spec: OperatorSpec
    bucket: int
    changes: Mapping[int, pa.Table]
    others: Sequence[Frame]

    def __iter__(self) -> Iterator[Frame]:
        for query, changes in self.changes.items():
            yield from result_frames(self.spec, self.bucket, query, changes)
        yield from self.others

    def results(self, query: int = 0) -> pa.Table | None:
        """Return the results of a query in its schema; None if there are none."""
        changes = self.changes.get(query)
        return changes.cast(self.spec.outputs[query]) if changes is not None and changes.num_rows else None

    def followed_by(self, frames: Sequence[Frame]) -> Outbox:
        """The same outbox with further frames at its end."""
        return replace(self, others=[*self.others, *frames])


def forwarded(spec: OperatorSpec, bucket: int, frames: Sequence[Frame]) -> list[Frame]:
    """Address frames of earlier operators to the next one."""
    buckets = spec.downstream.buckets if spec.downstream else (bucket,)
    return [passed_on(frame, buckets) for frame in frames]


def side_output(spec: OperatorSpec, bucket: int, tables: Sequence[pa.Table]) -> list[Frame]:
    """Encode rows of the side output."""
    return [frame for table in tables for frame in side_frames(table, bucket=_next_bucket(spec, bucket))]


def frontier_marks(spec: OperatorSpec, bucket: int, manifest: Manifest) -> list[Frame]:
    """Report the operator's frontier to every bucket downstream, or from this bucket to the result.

    While the frontiers of all buckets are the same, the first one reports it for all.
    """
    to = spec.downstream
    part = str(bucket)
    if to is None:
        return [mark_frame(bucket, 0, part, manifest.frontier)]
    if to.in_task:
        return [mark_frame(bucket, to.input, EVERY, manifest.frontier)]
    if manifest.alike:
        if bucket != spec.buckets[0]:
            return []
        part = EVERY
    return [mark_frame(each, to.input, part, manifest.frontier) for each in to.buckets]


def bucket_counters(
    spec: OperatorSpec,
    bucket: int,
    manifest: Manifest,
    working_set: WorkingSet,
    loaded: int,
    step_times: Mapping[int, int],
) -> Frame:
    """Report the counters since the query began, and the size of this bucket's state.

    ``loaded`` is in bytes, and ``step_times`` counts the steps since the last report by their lengths (step_times.py).
    """
    live = spec.kernel.live_relations(manifest.frontier)
    held = {
        relation: working_set.count(relation, low) - working_set.count(relation + GONE, low)
        for relation, low in live.items()
    }
    gauges = {
        f"{spec.name}.state_rows": sum(held.values()),
        f"{spec.name}.state_bytes": manifest.nbytes,
        f"{spec.name}.disk_bytes": working_set.disk_bytes,
        f"{spec.name}.segments": len(manifest.segments),
        f"{spec.name}.frontier": manifest.frontier,
        f"{spec.name}.loaded_bytes": loaded,
        f"{spec.name}.worker_bytes": _peak_memory(),
        **{f"{spec.name}.{STEP_TIME}.{number}": count for number, count in step_times.items()},
    }
    by_side = len(live) == len(spec.inputs)  # otherwise the state is no store of each input
    for number, (relation, low) in enumerate(live.items()):
        label = spec.inputs[number].label if by_side else relation
        gauges[f"{spec.name}.held.{label}"] = held[relation]
        gauges[f"{spec.name}.held_bytes.{label}"] = working_set.stored_bytes(relation, low)
    for number, newest in manifest.newest.items():  # in the first bucket
        if newest not in (NEVER, FOREVER):
            gauges[f"{spec.name}.newest.{spec.inputs[number].label}"] = newest
    gauges |= {f"{spec.name}.{name}": round(value) for name, value in manifest.statistics.get("gauges", {}).items()}
    gauges |= _heard(spec, bucket, manifest)
    gauges |= _input_frontiers(spec, bucket, manifest)
    return counter_frame(_next_bucket(spec, bucket), f"{spec.name}.{bucket}", {**manifest.counters, **gauges})


def _heard(spec: OperatorSpec, bucket: int, manifest: Manifest) -> dict[str, int]:
    """Return when each part of a source last reported; what all buckets say alike the first one says for all."""
    if manifest.alike and bucket != spec.buckets[0]:
        return {}
    times = len(spec.buckets) if manifest.alike else 1
    return {
        f"{spec.name}.heard.{input.source}.{part}": times * manifest.parts[number][part].heard
        for number, input in enumerate(spec.inputs)
        if input.source is not None and not input.is_of_results
        for part in input.parts
    }


def _input_frontiers(spec: OperatorSpec, bucket: int, manifest: Manifest) -> dict[str, int]:
    """Return the frontier of each input that has one, by label: the least of them holds the operator back."""
    if manifest.alike and bucket != spec.buckets[0]:
        return {}
    return {
        f"{spec.name}.{INPUT_FRONTIER}.{spec.inputs[number].label}": frontier
        for number, frontier in manifest.own.items()
        if frontier not in (NEVER, FOREVER)
    }


def _peak_memory() -> int:
    """Return the most memory that this process has had resident, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def result_frames(spec: OperatorSpec, bucket: int, query: int, changes: pa.Table) -> Iterator[Frame]:
    """Yield a query's results for the buckets of the next operator, or for the end of the query."""
    if changes.num_rows == 0:
        return
    changes = changes.cast(spec.outputs[query])
    to = spec.downstream
    if to is None:
        yield from row_frames(changes, bucket=bucket, input=query)
        return
    if len(to.times) == 1:
        changes = changes.rename_columns([TIME if name == to.times[0] else name for name in changes.column_names])
    else:
        changes = changes.append_column(TIME, pc.coalesce(*(changes[name] for name in to.times)))
    indexes = home_indexes(key_hashes(changes, to.hashes), len(to.buckets))
    for index, rows in split_by_bucket(changes, indexes, len(to.buckets)):
        yield from row_frames(rows, bucket=to.buckets[index], input=to.input)


def _next_bucket(spec: OperatorSpec, bucket: int) -> int:
    """Return the bucket for frames that belong to no bucket's state: the first downstream, or this one at the end."""
    return spec.downstream.buckets[0] if spec.downstream else bucket
