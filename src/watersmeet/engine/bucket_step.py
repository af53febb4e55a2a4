"""One bucket's steps: frames in, kernel, durable state, frames out.

Nothing here knows Spark: tasks open the buckets of their operators (bucket_task.py), and so does the test harness.  The
store commits all that was written since the last commit, or nothing.
"""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain

import duckdb
import pyarrow as pa

from watersmeet.engine.bucket_sizes import SizeLog, allowance
from watersmeet.engine.cuts import in_pieces
from watersmeet.engine.evaluation import EVALUATION_ERRORS, cannot_evaluate
from watersmeet.engine.evicted_rows import evicted_rows
from watersmeet.engine.frames import Frame, received_by
from watersmeet.engine.frontiers import advance_frontiers
from watersmeet.engine.hot_key_decision import decide_hot_keys
from watersmeet.engine.hot_keys import HotKeyLog
from watersmeet.engine.inbox import sort_inbox
from watersmeet.engine.late_rows import late_bounds, split_late_rows
from watersmeet.engine.outbox import Outbox, bucket_counters, forwarded, frontier_marks, side_output
from watersmeet.engine.row_hashes import in_one_order
from watersmeet.engine.segment_log import SegmentLog, apply_result, check_limit
from watersmeet.engine.specs import OperatorSpec
from watersmeet.engine.stages import stages
from watersmeet.engine.step_times import bin_of
from watersmeet.errors import LimitError
from watersmeet.kernels.api import BatchPart, StepFrontiers, StepResult, pieces_of
from watersmeet.state.local_copies import LocalCopies
from watersmeet.state.manifest import EVERY, Manifest, read_manifest, write_manifest
from watersmeet.state.store import MemoryStore, Store
from watersmeet.state.working_set import WorkingSet

#: The owner of large values of new rows.
_STEP = "step"
#: A row may have the bytes of one and a half steps, in percent of one, and in any case …
_ROW_PERCENT = 150
#: … so many.
_ALWAYS_FITS = 16_000_000
#: Why DuckDB could not commit a table.
_NO_MEMORY = re.compile("allocate|pin block")


def run_step(
    spec: OperatorSpec,
    bucket: int,
    frames: Iterable[Frame],
    store: Store,
    working_set: WorkingSet,
    local_copies: LocalCopies | None = None,
    hot_keys: HotKeyLog | None = None,
    sizes: SizeLog | None = None,
    max_step_bytes: int | None = None,
) -> Iterator[Frame]:
    """Take one batch of one bucket; see ``OpenBucket`` and its ``run``."""
    opened = OpenBucket(spec, bucket, store, working_set, local_copies, hot_keys, sizes, max_step_bytes)
    return opened.run(frames)


class OpenBucket:
    """A bucket between two commits: any number of steps, then ``close`` writes its manifest.

    ``local_copies`` holds copies of the bucket's segments that workers of this machine left for each other.
    ``hot_keys`` is the log that the rows of a step were packed by (None: the query spreads no keys).  ``sizes`` is
    the log of all buckets' sizes (None: not known, so that each may hold an even share of a limit).  Frames whose rows
    have more than ``max_step_bytes`` are taken in several steps, if the operator can.

    Raises ``CheckpointError`` if the stored state belongs to another plan or format.
    """

    def __init__(
        self,
        spec: OperatorSpec,
        bucket: int,
        store: Store,
        working_set: WorkingSet,
        local_copies: LocalCopies | None = None,
        hot_keys: HotKeyLog | None = None,
        sizes: SizeLog | None = None,
        max_step_bytes: int | None = None,
    ) -> None:
        self._max_step_bytes = max_step_bytes
        self._spec, self._bucket, self._store = spec, bucket, store
        self._working_set, self._hot_keys = working_set, hot_keys
        working_set.carried = spec.carried
        self._sizes, self._known_sizes, self._evicted_bytes = sizes, sizes.read() if sizes else {}, 0
        self._manifest = _read_manifest(spec, bucket, store)
        for number, input in enumerate(spec.inputs):
            self._manifest.take_order(number, input.order)
        self._log = SegmentLog(self._manifest, store, working_set, local_copies)
        self._loaded = working_set.sync(self._manifest.segments, self._log.load, hot=spec.hot)
        self._reported = self._manifest.frontier
        self._step_times: Counter[int] = Counter()

    def run(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        """Take a whole batch, write the state, and yield the frames that it makes the bucket send on.

        Results come as they are made; the batch is done when all frames are taken.
        """
        yield from self.stream(frames)
        yield from self.close()

    def step(self, frames: Iterable[Frame]) -> Outbox:
        """Take frames and return what they make it send on; ``advanced`` and ``close`` report its frontier.

        Raises ``LimitError`` if the state would exceed its limit or a step needs more memory than there is.  Then the
        bucket cannot be used further, and nothing since the last commit counts.
        """
        changes = defaultdict[int, list[pa.Table]](list)
        others: list[Frame] = []
        for outbox in self.outboxes(frames):
            for query, rows in outbox.changes.items():
                changes[query].append(rows)
            others += outbox.others
        whole = {query: pa.concat_tables(rows) for query, rows in changes.items()}
        return Outbox(self._spec, self._bucket, whole, others)

    def outboxes(self, frames: Iterable[Frame]) -> Iterator[Outbox]:
        """Take frames and yield what ``step`` returns, results as they are made; raises what it raises."""
        self._manifest.alike = False  # this bucket may take marks in another step than other buckets
        yield from self._outboxes(frames)

    def stream(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        """Take frames and yield what they make it send on; raises what ``step`` raises."""
        return chain.from_iterable(self._outboxes(frames))

    def _outboxes(self, frames: Iterable[Frame]) -> Iterator[Outbox]:
        most = self._max_step_bytes if self._spec.takes_pieces else None
        self._log.begin_batch(self._manifest.step + 1)
        received = _fitting(received_by(frames, self._spec.name), self._spec.name, self._max_step_bytes)
        first_rid = self._manifest.next_rid
        spec = self._spec
        pieces = in_pieces(
            received, most, spec.cut_by, spec.taken_last, divides=spec.divides_keys, alike=spec.gives_ids
        )
        for number, (piece, is_last) in enumerate(pieces):
            yield from self._take_step(piece, BatchPart(first_rid, number == 0, is_last))

    def _take_step(self, frames: Iterable[Frame], part: BatchPart) -> Iterator[Outbox]:
        spec, manifest, working_set = self._spec, self._manifest, self._working_set
        began = time.monotonic()
        inbox = sort_inbox(spec, frames)
        bounds = late_bounds(spec, manifest)
        frontiers = advance_frontiers(spec, manifest, inbox)
        inputs, late = split_late_rows(spec, manifest, inbox, bounds)
        if spec.gives_ids:
            inputs = {number: in_one_order(rows) for number, rows in inputs.items()}
        if part.is_last and self._bucket == spec.buckets[0]:  # once in a batch, when all its reports are there
            decide_hot_keys(spec, manifest, inbox, self._hot_keys)

        result = StepResult()
        working_set.max_bytes, working_set.batch = self._max_bytes(), part
        values = working_set.values
        try:
            inputs = {number: values.keep(_STEP, table, spec.carried) for number, table in inputs.items()}
            for stage in stages(frontiers, manifest.segments, spec.waiting, self._max_step_bytes):
                result = yield from self._run_kernel(inputs, stage)
                inputs = {number: table.slice(0, 0) for number, table in inputs.items()}
        finally:
            values.forget(_STEP)
        if part.is_last and not part.is_first:
            self._log.remove_past(result.forget)
        # all buckets number their batches alike, however many steps each takes
        manifest.step += part.is_last
        working_set.move_to_disk(manifest.segments, spec.hot)
        if part.is_last:  # before, the frontier has not advanced, and rows stay that need not
            check_limit(spec, manifest, self._others_bytes())
        else:
            working_set.give_back()
        self._step_times[bin_of(time.monotonic() - began)] += 1
        others = [*forwarded(spec, self._bucket, inbox.passing), *side_output(spec, self._bucket, late)]
        if others:
            yield self._outbox_of(others)

    def _run_kernel(
        self, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers
    ) -> Generator[Outbox, None, StepResult]:
        """Run the kernel, unless there is nothing to do, and apply what it says to the state.

        Yields the results and the rows that were evicted.
        """
        spec, manifest, working_set = self._spec, self._manifest, self._working_set
        if not self._is_due(inputs, frontiers):
            return StepResult()
        working_set.statistics = manifest.statistics
        try:
            with _step_errors(spec.name):
                result = spec.kernel.step(working_set, inputs, frontiers, manifest.next_rid)
                for query, changes in enumerate([result.changes, *result.further]):
                    pieces = () if changes is None else pieces_of(changes)
                    for rows in (part for piece in pieces for part in working_set.values.pieces(piece)):
                        manifest.count(f"{spec.name}.results", rows.num_rows)
                        if spec.gives_matches:
                            manifest.count(f"{spec.name}.matched", rows.num_rows)
                        yield Outbox(spec, self._bucket, {query: rows}, [])
                for rows in evicted_rows(spec, result):
                    yield self._outbox_of(side_output(spec, self._bucket, [rows]))
                # not before these are taken: they may read the state
                apply_result(self._log, result, spec.kernel.partition_width, self._max_step_bytes)
        finally:
            working_set.release()
        manifest.next_rid += sum(table.num_rows for table in inputs.values())
        if result.statistics is not None:
            manifest.statistics = result.statistics
        for name, by in result.counters.items():
            manifest.count(f"{spec.name}.{name}", by)
        self._evicted_bytes += result.evicted_bytes
        return result

    def _outbox_of(self, others: Sequence[Frame]) -> Outbox:
        return Outbox(self._spec, self._bucket, {}, others)

    def _is_due(self, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers) -> bool:
        """Return whether the kernel has something to do: there are rows, a frontier has advanced, or rows must go."""
        manifest, working_set = self._manifest, self._working_set
        if working_set.batch.is_last and not working_set.batch.is_first:
            return True  # a kernel that evicts leaves that to the last step of a batch; others have nothing to do
        is_first = manifest.step == 0  # an aggregate of all rows has a result before there are any
        is_new = any(rows.num_rows for rows in inputs.values()) or _has_advanced(self._spec, frontiers)
        # other buckets may hold more now, so that this one must hold less
        is_over = working_set.max_bytes is not None and manifest.nbytes > working_set.max_bytes
        return is_first or is_new or is_over

    def advanced(self) -> list[Frame]:
        """Return marks with the operator's frontier if it has advanced since the last call."""
        if self._manifest.frontier == self._reported:
            return []
        self._reported = self._manifest.frontier
        return frontier_marks(self._spec, self._bucket, self._manifest)

    def close(self) -> list[Frame]:
        """Write the manifest; return what the bucket reports at every commit: its frontier, counters and size."""
        write_manifest(self._store, self._manifest)
        spec, bucket, manifest = self._spec, self._bucket, self._manifest
        if self._sizes is not None:
            self._sizes.report(bucket, manifest.nbytes + self._evicted_bytes)
        return [
            *frontier_marks(spec, bucket, manifest),
            bucket_counters(spec, bucket, manifest, self._working_set, self._loaded, self._step_times),
        ]

    def _max_bytes(self) -> int | None:
        """What this bucket may hold, if rows are evicted."""
        spec = self._spec
        if spec.max_state_bytes is None or not spec.evicts_at_limit:
            return None
        return allowance(spec.max_state_bytes, self._known_sizes, self._bucket, len(spec.buckets))

    def _others_bytes(self) -> int | None:
        """What the other buckets reported at the last commit; None if that is not known."""
        if len(self._spec.buckets) == 1:
            return 0
        if self._sizes is None:
            return None
        return sum(size for bucket, size in self._known_sizes.items() if bucket != self._bucket)


def _read_manifest(spec: OperatorSpec, bucket: int, store: Store) -> Manifest:
    parts = {number: (EVERY,) if each.source is None else each.parts for number, each in enumerate(spec.inputs)}
    # 2**48 row ids for each bucket: ids are unique over all buckets of the operator
    return read_manifest(store, spec.fingerprint, parts, first_rid=spec.buckets.index(bucket) << 48)


def first_manifest(spec: OperatorSpec, bucket: int) -> Manifest:
    """Return the manifest with which a bucket begins."""
    return _read_manifest(spec, bucket, MemoryStore())


@contextmanager
def _step_errors(operator: str) -> Iterator[None]:
    """Raise what DuckDB raises while a step runs as an error of the query."""
    try:
        yield
    except (duckdb.OutOfMemoryException, duckdb.TransactionException) as error:
        # where a table in a file needs too much memory, DuckDB says that its transaction failed
        if isinstance(error, duckdb.TransactionException) and not _NO_MEMORY.search(str(error)):
            raise
        raise LimitError(
            f"a batch of {operator} needs more memory than a worker has: {str(error).splitlines()[0]}",
            hint="raise worker_memory, or make batches smaller (max_files_per_trigger, max_offsets_per_trigger; a file "
            "is not divided), and resume; nothing was lost",
        ) from None
    except EVALUATION_ERRORS as error:
        raise cannot_evaluate(operator, error) from None


def _fitting(frames: Iterable[Frame], operator: str, max_step_bytes: int | None) -> Iterator[Frame]:
    """Yield frames; raise ``LimitError`` at a row that is too large for the memory of the worker.

    A pair of such rows is there several times while it is made: as they came, whole, and encoded.
    """
    most = None if max_step_bytes is None else max(_ROW_PERCENT * max_step_bytes // 100, _ALWAYS_FITS)
    for frame in frames:
        if most is not None and frame.kind.has_rows and frame.frontier == 1 and len(frame.payload) > most:
            raise LimitError(
                f"a row of {len(frame.payload):,} bytes came to {operator}, where a worker with this memory takes rows "
                f"of at most {most:,}",
                hint="raise worker_memory (a row may have 15% of what it has beyond 200 MB), or leave the large "
                "column out of the query, and resume; nothing was lost",
            )
        yield frame


def _has_advanced(spec: OperatorSpec, frontiers: StepFrontiers) -> bool:
    """Return whether a frontier by which rows become final has advanced."""
    own = zip(spec.inputs, frontiers.inputs_before, frontiers.inputs, strict=True)
    return frontiers.before != frontiers.after or any(each.late_by_own and was != now for each, was, now in own)
