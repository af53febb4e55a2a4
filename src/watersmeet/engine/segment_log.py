"""The segment log: how the result of a step changes a bucket's segments, and the limit on their size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import RID, TIME
from watersmeet.engine.specs import OperatorSpec
from watersmeet.errors import LimitError
from watersmeet.kernels.api import NEVER, Rows, StepResult, quote
from watersmeet.state.compaction_plan import plan_merges
from watersmeet.state.local_copies import LocalCopies
from watersmeet.state.manifest import Manifest
from watersmeet.state.mapped_file import MappedFile, mapped_batches
from watersmeet.state.segments import Segment, drop_segment, read_segment, split_by_time, write_segment
from watersmeet.state.store import Store
from watersmeet.state.working_set import WorkingSet


@dataclass(slots=True)
class SegmentLog:
    """A bucket's segments in all places that hold them: manifest, store, working set, and copies on local disk.

    Segments are named by their ``batch``, and by the ``part`` of it that wrote them: a batch may take several steps.
    """

    manifest: Manifest
    store: Store
    working_set: WorkingSet
    copies: LocalCopies | None
    batch: int = 0
    part: int = 0

    def begin_batch(self, number: int) -> None:
        """Number the steps of a batch from 0 on."""
        self.batch, self.part = number, 0

    def load(self, segment: Segment) -> pa.Table:
        """Read a segment that the working set lacks, from a local copy if there is one."""
        copy = None if self.copies is None else self.copies.get(segment.id)
        return read_segment(self.store, segment) if copy is None else copy

    def add(self, relation: str, rows: pa.Table) -> None:
        """Write rows (at least one), of which large values may be kept by the working set, as a segment."""
        rows = self.working_set.values.whole(rows)
        step = f"{self.batch}.{self.part}" if self.part else str(self.batch)
        segment = write_segment(self.store, step, relation, rows)
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

    def remove_past(self, forget: Mapping[str, int]) -> None:
        """Write the batch's segments again without rows that are past at its end: its earlier steps stored them.

        ``forget`` has the ``$t`` below which rows are past, by relation.
        """
        names = f"{self.batch}-", f"{self.batch}."
        for segment in [each for each in self.manifest.segments if each.id.startswith(names)]:
            if segment.low < (past := forget.get(segment.relation, NEVER)):
                _merge(self, [segment], past)


def apply_result(log: SegmentLog, result: StepResult, width: int | None, max_step_bytes: int | None = None) -> None:
    """Drop segments that are expired or replaced, add the new rows, and merge small segments: the end of a step.

    ``width`` is the kernel's partition width.  Rows that are made in pieces become segments of about
    ``max_step_bytes``, and no merge reads more.
    """
    # these may read what is replaced
    many = [*result.replace.items(), *result.store_made.items()]
    made = [(relation, list(_set_aside(rows, max_step_bytes))) for relation, rows in many]
    for segment in list(log.manifest.segments):
        if segment.high < result.forget.get(segment.relation, NEVER) or segment.relation in result.replace:
            log.drop(segment)
    for relation, tables in result.evict.items():
        for gone in tables:
            _remove_rows(log, relation, gone)
    if made:
        log.working_set.give_back()
    for relation, parts in made:
        for part, file in parts:
            _add(log, relation, part, width)
            if file is not None:
                file.release()
    for relation, rows in result.store.items():
        _add(log, relation, rows, width)
    for group in plan_merges(log.manifest.segments, width, max_step_bytes):
        _merge(log, group, result.forget.get(group[0].relation, NEVER))
    log.part += 1


def _set_aside(rows: Rows, max_bytes: int | None) -> Iterator[tuple[pa.Table, MappedFile | None]]:
    """Yield rows as they are, or those that are made piece by piece as tables in files, each of about ``max_bytes``."""
    if isinstance(rows, pa.Table):
        yield rows, None
        return
    for first in rows:
        schema, pieces = first.schema, chain(iter([first]), rows)
        del first  # a piece is freed before the next is made
        file, table = mapped_batches(_up_to(pieces, max_bytes), schema)
        file.release()
        yield table, file


def _up_to(pieces: Iterable[pa.Table], max_bytes: int | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of at least one piece, and of more while such pieces fit in so many bytes (None: of all)."""
    taken = 0
    for piece in pieces:
        nbytes = piece.nbytes
        yield from piece.to_batches()
        del piece
        taken += nbytes
        if max_bytes is not None and taken + nbytes > max_bytes:
            return


def _add(log: SegmentLog, relation: str, rows: pa.Table, width: int | None) -> None:
    for piece in split_by_time(rows, width):
        log.add(relation, piece)


def _merge(log: SegmentLog, group: Sequence[Segment], past: int) -> None:
    """Write segments again as one, without rows before ``past``."""
    rows = log.working_set.read(group)
    if any(segment.low < past for segment in group):
        rows = rows.filter(pc.greater_equal(rows[TIME], pa.scalar(past, pa.int64())))
    for segment in group:
        log.drop(segment)
    if rows.num_rows:
        log.add(group[0].relation, rows)


def _remove_rows(log: SegmentLog, relation: str, gone: str) -> None:
    """Write the segments that hold some rows of a table, by ``rid``, again without them."""
    for segment in [each for each in log.manifest.segments if each.relation == relation]:
        near = f"SELECT 1 FROM {gone} WHERE t BETWEEN {segment.low} AND {segment.high} LIMIT 1"
        if not log.working_set.query(near).num_rows:
            continue
        rows = log.working_set.read([segment])
        # a copy: what is registered stays, and would keep the rows in memory
        ids = log.working_set.register(pa.table({RID: rows[RID].to_numpy().copy()}))
        found = log.working_set.query(f"SELECT {quote(RID)} FROM {ids} SEMI JOIN {gone} ON rid = {quote(RID)}")[RID]
        if not len(found):
            continue
        kept = rows.filter(pc.invert(pc.is_in(rows[RID], value_set=found)))
        log.drop(segment)
        if kept.num_rows:
            log.add(relation, kept)


_OF_JOINS = ", or add WITHIN, or SETTINGS eviction = 'oldest', and start again"


def check_limit(spec: OperatorSpec, manifest: Manifest, others: int | None) -> None:
    """Raise ``LimitError`` if the state exceeds its limit, and its rows are not evicted.

    ``others`` is what the other buckets reported after the batch before; if it is not known (None), the bucket may hold
    an even share of the limit.
    """
    if spec.max_state_bytes is None or spec.evicts_at_limit:
        return
    stored, count, is_join = manifest.nbytes, len(spec.buckets), len(spec.inputs) > 1
    most = spec.max_state_bytes // count if others is None else spec.max_state_bytes - others
    if stored > most:
        where = f" in one of {count} buckets" if others is None and count > 1 else ""
        held = stored + (others or 0)
        raise LimitError(
            f"the state of {spec.name} has reached its limit: its rows take {held:,} bytes{where}",
            detail=f"join_max_buffered_bytes = {spec.max_state_bytes:,}"
            + (f" allows {most:,} in each, since workers cannot read each other's files" if where else ""),
            hint="raise join_max_buffered_bytes and resume (nothing was lost)" + (_OF_JOINS if is_join else ""),
        )
