"""Faults planted in the engine, each of a kind that such engines have had: the simulation must find them.

Each is a patch of one function.  ``python -m tests.simulation.planted [MOST [NAME]]`` prints which of the first seeds
finds each of them, or those whose name has a part.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.simulation import tasks
from tests.simulation.run import simulate
from tests.simulation.state import AttemptStore, Place, StateVersions
from watersmeet.columns import WEIGHT
from watersmeet.engine import bucket_step, hot_key_decision, outbox, pack
from watersmeet.engine.bucket_step import OpenBucket
from watersmeet.engine.cuts import in_pieces
from watersmeet.engine.frames import Frame, FrameKind
from watersmeet.engine.hot_keys import Entry, HotKeys, Phase
from watersmeet.engine.late_rows import late_bounds, split_late_rows
from watersmeet.engine.outbox import frontier_marks
from watersmeet.engine.routing import key_hashes
from watersmeet.engine.segment_log import apply_result
from watersmeet.kernels.aggregate import kernel as aggregate
from watersmeet.kernels.aggregate import step as aggregate_step
from watersmeet.kernels.aggregate.final_step import run_final
from watersmeet.kernels.api import FOREVER, NEVER, StepFrontiers, StepResult
from watersmeet.lookup.cache import LookupCache
from watersmeet.lookup.file_tables import FilesSource
from watersmeet.runtime import exchange, hot_key_files
from watersmeet.runtime.hot_key_files import HotKeyFiles
from watersmeet.state import segments
from watersmeet.state.local_copies import LocalCopies
from watersmeet.state.manifest import Manifest, write_manifest
from watersmeet.state.working_set import WorkingSet

Patch = pytest.MonkeyPatch
FAULTS: dict[str, Callable[[Patch], None]] = {}


def _fault(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
    FAULTS[plant.__name__.replace("_", " ")] = plant
    return plant


@_fault
def a_working_set_with_rows_is_not_synced(patch: Patch) -> None:
    sync = WorkingSet.sync

    def lazy(self: WorkingSet, live: Any, load: Any, **options: Any) -> int:
        return 0 if self._segments else sync(self, live, load, **options)

    patch.setattr(WorkingSet, "sync", lazy)


@_fault
def obsolete_segments_stay_in_the_working_set(patch: Patch) -> None:
    def grown(self: WorkingSet, live: Any, load: Any, *, hot: Any = None) -> int:
        for segment in live:
            if segment.id not in self._segments:
                self.add(segment, load(segment))
        return 0

    patch.setattr(WorkingSet, "sync", grown)


@_fault
def local_copies_are_named_without_the_hash_of_their_content(patch: Patch) -> None:
    patch.setattr(LocalCopies, "_path", lambda self, id: self._folder / f"{id.rpartition('-')[0]}.arrow")


@_fault
def segments_are_named_by_their_step_alone(patch: Patch) -> None:
    patch.setattr(segments, "checksum", lambda payloads: "0")


@_fault
def rows_are_late_by_the_frontier_after_the_batch(patch: Patch) -> None:
    def later(spec: Any, manifest: Manifest, inbox: Any, bounds: Any) -> Any:
        return split_late_rows(spec, manifest, inbox, late_bounds(spec, manifest))

    patch.setattr(bucket_step, "split_late_rows", later)


@_fault
def rows_of_one_time_have_no_order(patch: Patch) -> None:
    def same(rows: pa.Table, sequence: str, seen: int) -> pa.Table:
        places = pa.array([b""] * rows.num_rows, pa.binary())
        return rows.set_column(rows.column_names.index(sequence), sequence, places)

    patch.setattr(pack, "_number_within_place", same)


@_fault
def row_ids_begin_anew_in_every_batch(patch: Patch) -> None:
    def forgetful(store: Any, manifest: Manifest) -> None:
        manifest.next_rid = 0
        write_manifest(store, manifest)

    patch.setattr(bucket_step, "write_manifest", forgetful)


@_fault
def a_merge_of_segments_loses_a_row(patch: Patch) -> None:
    read = WorkingSet.read
    patch.setattr(WorkingSet, "read", lambda self, group: read(self, group)[: -1 if len(group) > 1 else None])


@_fault
def rows_are_forgotten_a_unit_too_early(patch: Patch) -> None:
    def early(log: Any, result: StepResult, *options: Any) -> None:
        far = {name: time if time in (NEVER, FOREVER) else time + 1_000_000 for name, time in result.forget.items()}
        apply_result(log, replace(result, forget=far), *options)

    patch.setattr(bucket_step, "apply_result", early)


@_fault
def replaced_relations_stay(patch: Patch) -> None:
    def adding(log: Any, result: StepResult, *options: Any) -> None:
        store = {**result.store}
        for name, rows in result.replace.items():
            store[name] = pa.concat_tables([store[name], rows], promote_options="default") if name in store else rows
        apply_result(log, replace(result, store=store, replace={}), *options)

    patch.setattr(bucket_step, "apply_result", adding)


@_fault
def a_batch_is_packed_by_its_own_hot_keys(patch: Patch) -> None:
    def read(self: HotKeyFiles) -> Entry:
        with self._opened() as (filesystem, path):
            newest = max(hot_key_files._batches(filesystem, path), default=None)
            return Entry() if newest is None else hot_key_files._read(filesystem, path, newest).entry

    patch.setattr(HotKeyFiles, "read", read)
    patch.setattr(hot_key_decision, "CheckpointError", _IgnoredError)


class _IgnoredError(Exception):
    pass


@_fault
def spread_rows_go_round_by_their_number(patch: Patch) -> None:
    def in_turn(indexes: np.ndarray, hashes: Any, times: Any, keys: HotKeys, input: int, buckets: int) -> None:
        spread = [key for key, each in keys.items() if each.phase is Phase.SPREAD and each.spread == input]
        rows = np.isin(hashes, spread)
        indexes[rows] = np.arange(rows.sum()) % buckets

    patch.setattr(pack, "assign_spread_rows", in_turn)


@_fault
def copies_of_hot_rows_are_not_sent(patch: Patch) -> None:
    patch.setattr(pack, "rows_to_copy", lambda hashes, keys, input: None)


@_fault
def a_row_and_its_retraction_are_cut_apart(patch: Patch) -> None:
    patch.setattr(bucket_step, "in_pieces", lambda frames, most, *_: in_pieces(frames, most, {}))


@_fault
def marks_come_with_the_first_piece(patch: Patch) -> None:

    def hasty(frames: Iterable[Frame], *options: Any) -> Iterator[tuple[list[Frame], bool]]:
        pieces = [list(frames) for frames, _ in in_pieces(frames, *options)]
        others = [frame for frame in pieces[-1] if not frame.kind.has_rows]
        pieces = [[frame for frame in piece if frame.kind.has_rows] for piece in pieces]
        pieces[0] += others
        yield from ((piece, number == len(pieces) - 1) for number, piece in enumerate(pieces))

    patch.setattr(bucket_step, "in_pieces", hasty)


@_fault
def attempts_share_the_files_of_their_frames(patch: Patch) -> None:
    class Named:
        hex = "same"

    patch.setattr(exchange, "uuid", type("uuid", (), {"uuid4": staticmethod(lambda: Named)}))


@_fault
def only_the_first_bucket_hears_of_a_frontier(patch: Patch) -> None:
    def first_only(spec: Any, bucket: int, manifest: Manifest) -> list[Frame]:
        marks = frontier_marks(spec, bucket, manifest)
        return [mark for mark in marks if spec.downstream is None or mark.bucket == spec.downstream.buckets[0]]

    patch.setattr(bucket_step, "frontier_marks", first_only)


@_fault
def the_end_reaches_one_bucket_only(patch: Patch) -> None:
    class Deaf(OpenBucket):
        def run(self, frames: Iterable[Frame]) -> Iterator[Frame]:
            hears = self._bucket == self._spec.buckets[0]
            return super().run(frame for frame in frames if frame.kind is not FrameKind.CONTROL or hears)

    patch.setattr(tasks, "OpenBucket", Deaf)


@_fault
def a_failed_attempt_leaves_its_state(patch: Patch) -> None:
    opened = StateVersions.open

    def itself(self: StateVersions, place: Place, batch: int) -> AttemptStore:
        store = opened(self, place, batch)
        self.commit(place, batch - 1, store)  # what is put from now on is what the next attempt begins with
        return store

    patch.setattr(StateVersions, "open", itself)


@_fault
def results_are_sent_by_another_hash_than_rows(patch: Patch) -> None:
    patch.setattr(outbox, "key_hashes", lambda table, columns: key_hashes(table, columns) + table.num_rows % 2)


@_fault
def a_retraction_is_lost(patch: Patch) -> None:
    def losing(*arguments: Any) -> StepResult:
        result = aggregate_step.run(*arguments)
        if isinstance(result.changes, pa.Table) and WEIGHT in result.changes.column_names:
            places = np.flatnonzero(result.changes[WEIGHT].to_numpy() < 0)
            kept = np.setdiff1d(np.arange(result.changes.num_rows), places[:1])
            return replace(result, changes=result.changes.take(kept))
        return result

    patch.setattr(aggregate, "run", losing)


@_fault
def a_retracted_value_stays_in_its_bag(patch: Patch) -> None:
    added = aggregate_step.Step.added_values
    patch.setattr(
        aggregate_step.Step,
        "added_values",
        lambda self, bag, rows: added(self, bag, rows).replace("HAVING sum(w) <> 0", "HAVING sum(w) > 0"),
    )


@_fault
def a_group_is_closed_a_unit_too_early(patch: Patch) -> None:
    def early(kernel: Any, state: Any, rows: pa.Table, first_rid: int, frontiers: StepFrontiers) -> StepResult:
        far = [time if time in (NEVER, FOREVER) else time + 1_000_000 for time in (frontiers.before, frontiers.after)]
        return run_final(kernel, state, rows, first_rid, replace(frontiers, before=far[0], after=far[1]))

    patch.setattr(aggregate, "run_final", early)


@_fault
def the_state_of_a_group_is_not_written(patch: Patch) -> None:
    keep = aggregate_step.Step.keep

    def forgetful(self: aggregate_step.Step, relation: str) -> None:
        keep(self, relation)
        rows = self.result.store.get(relation)
        if rows is not None and relation == aggregate_step.TOTALS and rows.num_rows > 1:
            self.result.store[relation] = rows.slice(1)

    patch.setattr(aggregate_step.Step, "keep", forgetful)


@_fault
def settled_groups_are_not_read(patch: Patch) -> None:
    found = aggregate_step.Step.found
    patch.setattr(aggregate_step.Step, "found", lambda self, relation: found(self, relation)[:1])


@_fault
def the_cache_of_a_lookup_is_never_too_old(patch: Patch) -> None:
    get = LookupCache.get

    def lasting(self: LookupCache, keys: Any) -> Any:
        self.ttl = float("inf")
        return get(self, keys)

    patch.setattr(LookupCache, "get", lasting)


@_fault
def what_is_evicted_from_a_cache_counts_as_not_found(patch: Patch) -> None:
    get, put = LookupCache.get, LookupCache.put
    seen: dict[int, set[Any]] = defaultdict(set)

    def known(self: LookupCache, keys: Any) -> Any:
        rows, missing = get(self, keys)
        return rows, [place for place in missing if keys[place] not in seen[id(self)]]

    def noted(self: LookupCache, keys: Any, *options: Any) -> None:
        seen[id(self)] |= set(keys) if self._max_rows else set()
        put(self, keys, *options)

    patch.setattr(LookupCache, "get", known)
    patch.setattr(LookupCache, "put", noted)


@_fault
def a_compacted_cache_keeps_its_places(patch: Patch) -> None:
    compact = LookupCache._compact

    def misplaced(self: LookupCache) -> None:
        compact(self)
        for entry in self._entries.values():
            entry.start = 0

    patch.setattr(LookupCache, "_compact", misplaced)


@_fault
def a_lookup_asks_for_one_key_only(patch: Patch) -> None:
    patch.setattr(FilesSource, "fetch", lambda self, keys, fetch=FilesSource.fetch: fetch(self, keys.slice(0, 1)))


def found_by(fault: Callable[[Patch], None], seeds: Iterable[int]) -> int | None:
    """The first of some seeds that finds a fault; None if none does."""
    for seed in seeds:
        with pytest.MonkeyPatch.context() as patch:
            fault(patch)
            if simulate(seed) is not None:
                return seed
    return None


def main(most: int, part: str) -> None:
    for name, fault in FAULTS.items():
        if part not in name:
            continue
        seed = found_by(fault, range(most))
        print(f"{name:60} {f'survives {most} seeds' if seed is None else f'found by seed {seed}'}", flush=True)


if __name__ == "__main__":
    _, *given = sys.argv
    main(int(given[0]) if given else 1_000, given[1] if len(given) > 1 else "")
