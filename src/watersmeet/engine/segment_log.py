"""The segment log: how the result of a step changes a bucket's segments, and the limit on their size."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIME
from watersmeet.engine.specs import OperatorSpec
from watersmeet.errors import LimitError
from watersmeet.kernels.api import NEVER, StepResult
from watersmeet.state.compaction_plan import plan_merges
from watersmeet.state.local_copies import LocalCopies
from watersmeet.state.manifest import Manifest
from watersmeet.state.segments import Segment, drop_segment, read_segment, split_by_time, write_segment
from watersmeet.state.store import Store
from watersmeet.state.working_set import WorkingSet


@dataclass(frozen=True, slots=True)
class SegmentLog:
    """A bucket's segments in all places that hold them: manifest, store, working set, and copies on local disk."""

    manifest: Manifest
    store: Store
    working_set: WorkingSet
    copies: LocalCopies | None

    def load(self, segment: Segment) -> pa.Table:
        """Read a segment that the working set lacks, from a local copy if there is one."""
        copy = None if self.copies is None else self.copies.get(segment.id)
        return read_segment(self.store, segment) if copy is None else copy

    def add(self, relation: str, rows: pa.Table) -> None:
        """Write rows (at least one) as a segment."""
        segment = write_segment(self.store, self.manifest.step, relation, rows)
        self.manifest.segments.append(segment)
        self.working_set.add(segment, rows)
        if self.copies is not None:
            self.copies.put(segment.id, rows)

    def drop(self, segment: Segment) -> None:
        """Delete a segment everywhere."""
        self.manifest.segments.remove(segment)
        self.working_set.remove(segment.id)
        drop_segment(self.store, segment)
        if self.copies is not None:
            self.copies.remove(segment.id)


def apply_result(log: SegmentLog, result: StepResult, width: int | None) -> None:
    """Drop segments that are expired or replaced, add the new rows, and merge small segments.

    ``width`` is the kernel's partition width.
    """
    for segment in list(log.manifest.segments):
        if segment.high < result.forget.get(segment.relation, NEVER) or segment.relation in result.replace:
            log.drop(segment)
    for relation, rows in (*result.replace.items(), *result.store.items()):
        for piece in split_by_time(rows, width):
            log.add(relation, piece)
    for group in plan_merges(log.manifest.segments, width):
        relation = group[0].relation
        merged = log.working_set.read(group)
        past = result.forget.get(relation, NEVER)
        live = merged.filter(pc.greater_equal(merged[TIME], pa.scalar(past, pa.int64())))
        for segment in group:
            log.drop(segment)
        if live.num_rows:
            log.add(relation, live)


def check_limit(spec: OperatorSpec, manifest: Manifest) -> None:
    """Raise ``LimitError`` if the bucket's segments exceed its share of the state limit."""
    if spec.max_state_bytes is None:
        return
    share = spec.max_state_bytes // len(spec.buckets)
    stored = sum(segment.nbytes for segment in manifest.segments)
    if stored > share:
        raise LimitError(
            f"the state of {spec.name} has reached its limit: {stored:,} bytes in one of {len(spec.buckets)} buckets",
            detail=f"join_max_buffered_bytes = {spec.max_state_bytes:,} allows {share:,} bytes per bucket",
            hint="raise join_max_buffered_bytes and resume (nothing was lost), or add WITHIN and start again",
        )
