"""The stored rows of an operator, divided anew: from the state of all its buckets to that of another number of them.

A stopped operator's buckets have taken the same batches, so they agree in their frontiers.  Each row goes to the bucket
to which new rows of its key will go, and what is noted of a row goes with it (kernels/homes.py).  That every row lies
where its key belongs is checked on the way: the key is hashed again.

Rows of a hot key lie in several buckets (hot_keys.py).  Those that were spread come home, and copies are dropped.

What has no keys stays: an operator with one bucket keeps it, and one whose stored rows tell no keys (an aggregate of
all rows, in parts) keeps the number of its buckets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from watersmeet.columns import RID, TIME
from watersmeet.engine.conversion import Conversion
from watersmeet.engine.hot_keys import HotKeys
from watersmeet.engine.keys import Hasher, hashes_of
from watersmeet.engine.routing import home_indexes, split_by_bucket
from watersmeet.engine.specs import OperatorSpec
from watersmeet.errors import CheckpointError
from watersmeet.kernels.api import NEVER
from watersmeet.kernels.homes import ByKey, Everywhere, Home, Homes, WithRow
from watersmeet.state.manifest import EVERY, Manifest, PartFrontier, write_manifest
from watersmeet.state.segments import Segment, read_segment, segment_values, split_by_time, write_segment
from watersmeet.state.small_segments import alike
from watersmeet.state.store import MemoryStore, Store

#: Rows of so many bytes are collected before they are written: more would be in memory, less would make more segments.
_HELD_BYTES = 64 << 20
#: Row ids for each bucket: at a million rows a second, those of half a year.
_IDS = 1 << 44
_LAST_ID = 1 << 63


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows for a bucket, by its index: a segment, and the values that hold it in a store."""

    bucket: int
    segment: Segment
    values: Mapping[str, bytes]


def stays(spec: OperatorSpec) -> bool:
    """Return whether an operator's buckets stay as they are, whatever the number of the query's."""
    homes = spec.kernel.homes
    return homes is None or (bool(homes) and not any(spec.hashed))


# -- manifests ---------------------------------------------------------------------------------------------------------


def new_manifests(before: OperatorSpec, after: OperatorSpec, manifests: Sequence[Manifest]) -> list[Manifest]:
    """Return the manifests of the buckets ``after``, as yet without segments, from those of the buckets ``before``.

    Raises ``CheckpointError`` if the buckets do not agree in their frontiers, or row ids have been used up.
    """
    if stays(before):
        return [_carried_on(after, each, [each]) for each in manifests]
    _check_agreement(before, manifests)
    first = max(each.next_rid for each in manifests)
    if first + len(after.buckets) * _IDS >= _LAST_ID:
        raise CheckpointError(
            f"{before.name} has no row ids left for other buckets: it has been rescaled too often",
            hint="start on a new checkpoint",
        )
    found = []
    for index in range(len(after.buckets)):
        own = manifests[index] if index < len(manifests) else None
        manifest = _carried_on(after, manifests[0], manifests)
        manifest.alike = True
        manifest.next_rid = first + index * _IDS
        # no result depends on these; a bucket begins with what one has learned of its rows
        manifest.statistics = own.statistics if own is not None else {}
        if index:
            manifest.counters, manifest.newest = {}, {}
        found.append(manifest)
    _gather_counts(before, found[0], manifests)
    return found


def _carried_on(after: OperatorSpec, manifest: Manifest, all_of_them: Sequence[Manifest]) -> Manifest:
    parts = {number: _parts(after, number, all_of_them) for number in manifest.parts}
    step = max(each.step for each in all_of_them)
    return replace(
        manifest,
        fingerprint=after.fingerprint,
        step=step,
        own=dict(manifest.own),
        orders=dict(manifest.orders),
        parts=parts,
        newest=dict(manifest.newest),
        counters=dict(manifest.counters),
        segments=[],
    )


def _gather_counts(spec: OperatorSpec, first: Manifest, manifests: Sequence[Manifest]) -> None:
    """Give the first bucket all counts, which are reported as sums, and forget hot keys: all rows are at home."""
    first.counters = {}
    for manifest in manifests:
        for name, value in manifest.counters.items():
            first.count(name, value)
    if first.hot_keys is not None:
        first.hot_keys = None
        first.counters[f"{spec.name}.hot_keys"] = 0


def _parts(after: OperatorSpec, number: int, manifests: Sequence[Manifest]) -> dict[str, PartFrontier]:
    """Return the frontiers of an input's parts; buckets of an operator, also of one whose results are read, are one."""
    of_input = [each.parts.get(number, {}) for each in manifests]
    input = after.inputs[number]
    if input.source is not None and not input.is_of_results:
        names = dict.fromkeys(name for parts in of_input for name in parts)
        return {name: _heard([parts[name] for parts in of_input if name in parts]) for name in names}
    known = [part for parts in of_input for part in parts.values()]
    slowest = replace(_heard(known), frontier=min((part.frontier for part in known), default=NEVER))
    return {EVERY: slowest}


def _heard(parts: Sequence[PartFrontier]) -> PartFrontier:
    frontier, tie = max((part.frontier, part.tie) for part in parts)
    return PartFrontier(
        frontier=frontier,
        tie=tie,
        idle=all(part.idle for part in parts),
        heard=max(part.heard for part in parts),
    )


def _check_agreement(spec: OperatorSpec, manifests: Sequence[Manifest]) -> None:
    """Raise ``CheckpointError`` unless all buckets have the same frontiers: a row is late by that of its bucket."""
    for manifest in manifests[1:]:
        if _frontiers(manifest) != _frontiers(manifests[0]):
            raise CheckpointError(
                f"the buckets of {spec.name} have different frontiers",
                detail="in real time, an input that falls idle or begins again may leave them so for a while",
                hint="let the query run until all its inputs bring rows, stop it, and rescale it then",
            )


def _frontiers(manifest: Manifest) -> tuple[int, dict[int, int]]:
    """Return the frontiers of a bucket; one that no frame has reached yet knows of no input."""
    return manifest.frontier, {number: own for number, own in manifest.own.items() if own != NEVER}


# -- rows --------------------------------------------------------------------------------------------------------------


def divide(
    before: OperatorSpec,
    index: int,
    manifest: Manifest,
    store: Store,
    after: Sequence[Manifest],
    hasher: Hasher,
    hot_keys: HotKeys,
    conversion: Conversion | None = None,
) -> Iterator[Piece]:
    """Yield the rows of the bucket with this ``index``, for the buckets with the manifests ``after``.

    With a ``conversion`` they are those of a query that was changed.

    Raises ``CheckpointError`` if a row lies in another bucket than its key says.
    """
    width = before.kernel.partition_width if conversion is None else conversion.width
    written = _Written(f"{manifest.step}.{index}", width)
    live = before.kernel.live_relations(manifest.frontier)
    if stays(before):
        for segment in manifest.segments:
            if conversion is None:
                yield Piece(index, segment, segment_values(store, segment))
                continue
            kept = conversion.of(segment.relation, read_segment(store, segment), live.get(segment.relation, NEVER))
            yield from written.add(index, segment.relation, kept)
        yield from written.rest()
        return
    homes = before.kernel.homes
    assert homes is not None
    bucket = _Bucket(before, index, manifest, [each.next_rid for each in after], hasher, hot_keys)
    for relation, segments in _in_order(homes, manifest.segments).items():
        tables = (read_segment(store, segment) for segment in segments)
        for rows in [_newest(tables)] if isinstance(homes[relation], Everywhere) else tables:
            kept = rows if conversion is None else conversion.of(relation, rows, live.get(relation, NEVER))
            for to, own in bucket.divided(homes[relation], relation, kept):
                yield from written.add(to, relation, own)
    yield from written.rest()


def _in_order(homes: Homes, segments: Sequence[Segment]) -> dict[str, list[Segment]]:
    """Return segments by relation and time; notes come after the rows that they are about."""
    found: dict[str, list[Segment]] = {}
    for segment in sorted(segments, key=lambda each: (isinstance(homes[each.relation], WithRow), each.low)):
        found.setdefault(segment.relation, []).append(segment)
    return found


def _newest(tables: Iterable[pa.Table]) -> pa.Table:
    """Return the one row with the greatest time."""
    return max((each.sort_by([(TIME, "descending")]).slice(0, 1) for each in tables), key=_time_of_first)


def _time_of_first(rows: pa.Table) -> int:
    return int(rows[TIME][0].as_py())


@dataclass(slots=True)
class _Bucket:
    """A bucket whose rows are divided; ``next_rids`` are those of the buckets that get them."""

    spec: OperatorSpec
    index: int
    manifest: Manifest
    next_rids: Sequence[int]
    hasher: Hasher
    hot_keys: HotKeys
    _places: dict[str, list[tuple[np.ndarray, np.ndarray]]] = field(default_factory=lambda: defaultdict(list))

    def divided(self, home: Home, relation: str, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows of a relation for each bucket that gets some."""
        count = len(self.next_rids)
        match home:
            case Everywhere():
                yield from ((to, rows) for to in range(count))
            case WithRow(relations):
                places, known = self._places_of(relations, rows[RID].to_numpy())
                yield from split_by_bucket(rows.filter(pa.array(known)), places[known], count)
            case ByKey():
                rows, places = self._by_key(relation, home, rows)
                if RID in rows.column_names:
                    self._places[relation].append((rows[RID].to_numpy(), places))
                for to, own in split_by_bucket(rows, places, count):
                    yield to, self._counted_anew(to, own) if home.counted else own

    def _by_key(self, relation: str, home: ByKey, rows: pa.Table) -> tuple[pa.Table, np.ndarray]:
        """Return the rows that count, and the index of the bucket of each."""
        hashes = hashes_of(rows, self.spec.hashed[home.input], home.names, self.hasher)
        is_away = home_indexes(hashes, len(self.spec.buckets)) != self.index
        if is_away.any():
            spread = [key for key, each in self.hot_keys.items() if each.spread == home.input]
            is_copy = is_away & ~np.isin(hashes, spread)
            self._check_copies(relation, rows, hashes, is_copy)
            rows, hashes = rows.filter(pa.array(~is_copy)), hashes[~is_copy]
        return rows, home_indexes(hashes, len(self.next_rids))

    def _check_copies(self, relation: str, rows: pa.Table, hashes: np.ndarray, is_copy: np.ndarray) -> None:
        """Raise ``CheckpointError`` unless rows away from home are of hot keys, or past."""
        live = self.spec.kernel.live_relations(self.manifest.frontier).get(relation, NEVER)
        wrong = is_copy & ~np.isin(hashes, list(self.hot_keys)) & (rows[TIME].to_numpy() >= live)
        if wrong.any():
            raise CheckpointError(
                f"{int(wrong.sum())} rows of {self.spec.name} ({relation}) lie in another bucket than their keys say",
                hint="nothing was changed; please report this",
            )

    def _places_of(self, relations: Sequence[str], ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the bucket of each row id, and whether such a row is there; notes may outlive their rows."""
        found = [each for relation in relations for each in self._places[relation]]
        if not found:
            return np.zeros(len(ids), np.uint16), np.zeros(len(ids), bool)
        rids, places = (np.concatenate(each) for each in zip(*found, strict=True))
        order = np.argsort(rids, kind="stable")
        at = np.minimum(np.searchsorted(rids, ids, sorter=order), len(rids) - 1)
        return places[order[at]], rids[order[at]] == ids

    def _counted_anew(self, to: int, rows: pa.Table) -> pa.Table:
        """Return rows whose times are row ids with times that are as long ago in another bucket."""
        times = rows[TIME].to_numpy() - self.manifest.next_rid + self.next_rids[to]
        place = rows.column_names.index(TIME)
        return rows.set_column(place, rows.schema.field(place), pa.array(times, pa.int64()))


@dataclass(slots=True)
class _Written:
    """Rows on their way to segments; ``label`` begins the ids of the segments."""

    label: str
    width: int | None
    _held: dict[tuple[int, str], list[pa.Table]] = field(default_factory=lambda: defaultdict(list))
    _held_bytes: int = 0
    _number: int = 0

    def add(self, to: int, relation: str, rows: pa.Table) -> Iterator[Piece]:
        """Take rows for a bucket; yield all that is held once it is much."""
        self._held[to, relation].append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= _HELD_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[Piece]:
        """Yield all that is held."""
        for (to, relation), tables in self._held.items():
            for rows in alike(tables):
                for part in split_by_time(rows, self.width):
                    self._number += 1
                    values = MemoryStore()
                    segment = write_segment(values, f"{self.label}.{self._number}", relation, part)
                    yield Piece(to, segment, values)
        self._held.clear()
        self._held_bytes = 0


# -- all of it, in memory ----------------------------------------------------------------------------------------------


def rescaled(
    before: OperatorSpec,
    after: OperatorSpec,
    manifests: Sequence[Manifest],
    stores: Sequence[Store],
    hasher: Hasher,
    hot_keys: HotKeys,
    conversion: Conversion | None = None,
) -> list[MemoryStore]:
    """Return the stores of the buckets ``after`` from those of the buckets ``before``, in the order of both specs."""
    new = new_manifests(before, after, manifests)
    found = [MemoryStore() for _ in new]
    for index, (manifest, store) in enumerate(zip(manifests, stores, strict=True)):
        for piece in divide(before, index, manifest, store, new, hasher, hot_keys, conversion):
            new[piece.bucket].segments.append(piece.segment)
            found[piece.bucket].update(piece.values)
    for manifest, store in zip(new, found, strict=True):
        write_manifest(store, manifest)
    return found
