"""The state of an operator, divided anew: what moves, what stays, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from watersmeet.engine import rescale
from watersmeet.engine.hot_keys import HotKey, Phase
from watersmeet.engine.keys import hashes_of
from watersmeet.engine.rescale import rescaled, stays
from watersmeet.engine.specs import OperatorSpec
from watersmeet.errors import CheckpointError
from watersmeet.state.manifest import Manifest, decode_manifest, read_manifest
from watersmeet.state.segments import read_segment, write_segment
from watersmeet.state.store import MemoryStore
from watersmeet.testing.expressions import hash_values
from watersmeet.testing.harness import Harness, StepInput, load_script

STREAMS = """
CREATE STREAM a (k INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts);
CREATE STREAM b (k INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts);
"""
LEFT = "SELECT a.v, b.v AS w FROM a LEFT JOIN b ON a.k = b.k WITHIN INTERVAL '60' SECONDS"
ROWS = [(k, 10 * k + n, 1_000 * n) for k in range(12) for n in range(3)]


def run(query: str, buckets: int, settings: str = "") -> Harness:
    harness = Harness(*load_script(f"{STREAMS} {query} {settings};"), buckets=buckets)
    harness.step({"a": StepInput(ROWS), "b": StepInput([row for row in ROWS if row[0] % 3])})
    harness.step({"b": StepInput([(0, 1, 2_500)])})
    return harness


def operator(harness: Harness, number: int = 0) -> tuple[OperatorSpec, list[Manifest], list[MemoryStore]]:
    spec = harness._operators[number]
    stores = [harness._stores[spec.name, bucket] for bucket in spec.buckets]
    return spec, [decode_manifest(store["manifest"], ()) for store in stores], stores


def with_buckets(spec: OperatorSpec, count: int) -> OperatorSpec:
    return replace(spec, buckets=tuple(range(100, 100 + count)), fingerprint=f"with {count}")


def relations(spec: OperatorSpec, stores: Sequence[MemoryStore]) -> dict[str, list[list[dict[str, object]]]]:
    """The rows of each relation, by bucket."""
    found: dict[str, list[list[dict[str, object]]]] = {}
    for number, store in enumerate(stores):
        for segment in read_manifest(store, spec.fingerprint, {}).segments:
            of_buckets = found.setdefault(segment.relation, [[] for _ in stores])
            of_buckets[number] += read_segment(store, segment).to_pylist()
    return found


def ordered(rows: Sequence[dict[str, object]]) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_row_is_there_once_where_its_key_belongs(count: int) -> None:
    before, manifests, stores = operator(run(LEFT, 3))
    after = with_buckets(before, count)
    divided = rescaled(before, after, manifests, stores, hash_values, {})
    old, new = relations(before, stores), relations(after, divided)
    assert set(new) == {"left", "right", "left_matched"}
    for relation, by_bucket in new.items():
        assert ordered([row for rows in by_bucket for row in rows]) == ordered(
            [row for rows in old[relation] for row in rows]
        )
    keys = [{row["a:k"] for row in rows} for rows in new["left"]]
    assert sum(map(len, keys)) == len(set().union(*keys)) == 12
    for left, right, marks in zip(new["left"], new["right"], new["left_matched"], strict=True):
        assert {row["b:k"] for row in right} <= {row["a:k"] for row in left}
        assert {row["$rid"] for row in marks} <= {row["$rid"] for row in left}


def test_new_ids_come_after_all_that_there_were() -> None:
    before, manifests, stores = operator(run(LEFT, 3))
    divided = rescaled(before, with_buckets(before, 2), manifests, stores, hash_values, {})
    (first, second) = (decode_manifest(store["manifest"], ()) for store in divided)
    assert first.next_rid >= max(manifest.next_rid for manifest in manifests)
    assert second.next_rid - first.next_rid == 1 << 44
    with pytest.raises(CheckpointError, match="rescaled too often"):
        rescaled(
            before,
            with_buckets(before, 2),
            [replace(manifests[0], next_rid=2**63 - 2**44)] * 3,
            stores,
            hash_values,
            {},
        )


def test_counters_and_frontiers_stay() -> None:
    before, manifests, stores = operator(run(LEFT, 3))
    divided = rescaled(before, with_buckets(before, 5), manifests, stores, hash_values, {})
    found = [decode_manifest(store["manifest"], ()) for store in divided]
    for name in {name for manifest in manifests for name in manifest.counters}:
        assert sum(each.counters.get(name, 0) for each in found) == sum(
            each.counters.get(name, 0) for each in manifests
        )
    assert {(each.frontier, each.step) for each in found} == {(manifests[0].frontier, manifests[0].step)}
    assert all(each.own == manifests[0].own and each.parts == manifests[0].parts for each in found)


def test_the_last_row_of_a_declared_order_stays() -> None:
    streams = "".join(f"CREATE STREAM {name} (k INT, v INT, sn INT) WITH (ordered_by = 'sn, v');" for name in "ab")
    harness = Harness(*load_script(f"{streams} SELECT a.v FROM a JOIN b ON a.k = b.k AND a.sn = b.sn;"), buckets=2)
    harness.step({name: StepInput([(1, 7, 3)]) for name in "ab"})
    before, manifests, stores = operator(harness)
    after = with_buckets(before, 3)
    for store in rescaled(before, after, manifests, stores, hash_values, {}):
        found = read_manifest(store, after.fingerprint, {})
        assert found.tie(0, 3) == manifests[0].tie(0, 3) != b""


def test_buckets_that_disagree_are_refused() -> None:
    before, manifests, stores = operator(run(LEFT, 2))
    other = replace(manifests[1], frontier=manifests[1].frontier + 1)
    with pytest.raises(CheckpointError, match="have different frontiers"):
        rescaled(before, with_buckets(before, 3), [manifests[0], other], stores, hash_values, {})


def test_a_row_that_lies_elsewhere_is_refused() -> None:
    before, manifests, stores = operator(run(LEFT, 2))

    def other(columns: Sequence[pa.ChunkedArray]) -> object:
        return hash_values(columns) + 1

    with pytest.raises(CheckpointError, match="lie in another bucket than their keys say"):
        rescaled(before, with_buckets(before, 3), manifests, stores, other, {})  # type: ignore[arg-type]


def test_totals_without_keys_keep_their_buckets() -> None:
    harness = run("SELECT count(), sum(a.v) FROM a JOIN b ON a.k = b.k WITHIN INTERVAL '60' SECONDS", 3)
    assert [(spec.name, stays(spec), len(spec.buckets)) for spec in harness._operators] == [
        ("join_1", False, 3),
        ("aggregate_parts", True, 3),
        ("aggregate", True, 1),
    ]
    harness.rescale(5)
    assert [len(spec.buckets) for spec in harness._operators] == [5, 3, 1]


def test_rows_are_written_in_pieces_of_limited_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rescale, "_HELD_BYTES", 1)
    before, manifests, stores = operator(run(LEFT, 2))
    after = with_buckets(before, 3)
    divided = rescaled(before, after, manifests, stores, hash_values, {})
    old, new = relations(before, stores), relations(after, divided)
    assert {name: sum(map(len, rows)) for name, rows in new.items()} == {
        name: sum(map(len, rows)) for name, rows in old.items()
    }


@pytest.mark.parametrize("phase", [Phase.SPREAD, Phase.GATHERED])
def test_rows_of_a_hot_key_come_home_and_copies_go(phase: Phase) -> None:
    """Of key 0, rows of the left side lie in all buckets, and so do copies of rows of the right side."""
    spec, manifests, stores = operator(
        run("SELECT a.v, b.v AS w FROM a JOIN b ON a.k = b.k WITHIN INTERVAL '60' SECONDS", 3)
    )
    home = next(i for i, rows in enumerate(relations(spec, stores)["left"]) if any(row["a:k"] == 0 for row in rows))
    away = [number for number in range(3) if number != home]
    wanted = relations(spec, stores)
    for number in away:  # the rows of the other buckets become those of key 0
        segments, manifests[number].segments = manifests[number].segments, []
        for segment in segments:
            rows = read_segment(stores[number], segment)
            name = "a:k" if segment.relation == "left" else "b:k"
            place = rows.column_names.index(name)
            zeros = rows.set_column(place, rows.schema.field(place), pa.array([0] * rows.num_rows, pa.int32()))
            manifests[number].segments.append(write_segment(stores[number], "zeros", segment.relation, zeros))
    (key,) = hashes_of(pa.table({"a:k": pa.array([0], pa.int32())}), spec.hashed[0], {}, hash_values).tolist()
    after = with_buckets(spec, 2)
    hot = {key: HotKey(0, phase)}
    new = relations(after, rescaled(spec, after, manifests, stores, hash_values, hot))
    of_key = [[row for row in rows if row["a:k"] == 0] for rows in new["left"]]
    assert sorted(map(bool, of_key)) == [False, True]
    spread = sum(len(wanted["left"][number]) for number in away)
    assert sum(map(len, of_key)) == spread + sum(row["a:k"] == 0 for row in wanted["left"][home])
    copies = [row for rows in new["right"] for row in rows if row["b:k"] == 0]
    assert ordered(copies) == ordered([row for row in wanted["right"][home] if row["b:k"] == 0])
    with pytest.raises(CheckpointError, match="lie in another bucket"):
        rescaled(spec, after, manifests, stores, hash_values, {})


def test_a_join_without_keys_keeps_its_bucket_and_its_segments() -> None:
    harness = run("SELECT a.v, b.v AS w FROM a LEFT JOIN b ON a.k < b.k WITHIN INTERVAL '60' SECONDS", 3)
    before, manifests, _ = operator(harness)
    assert stays(before)
    harness.rescale(5)
    after, kept, _ = operator(harness)
    assert len(after.buckets) == 1
    assert [each.segments for each in kept] == [each.segments for each in manifests]


def test_keys_were_last_used_as_long_ago_as_before() -> None:
    settings = "SETTINGS eviction = 'lru', join_max_buffered_bytes = 1000000"
    before, manifests, stores = operator(run("SELECT a.v, b.v AS w FROM a JOIN b ON a.k = b.k", 3, settings))
    after = with_buckets(before, 2)
    divided = rescaled(before, after, manifests, stores, hash_values, {})

    def ages(spec: OperatorSpec, of: Sequence[MemoryStore]) -> list[tuple[object, int]]:
        ids = [decode_manifest(store["manifest"], ()).next_rid for store in of]
        used = relations(spec, of)["used"]
        return sorted((row["k0"], id - row["$t"]) for id, rows in zip(ids, used, strict=True) for row in rows)  # type: ignore[operator]

    found = ages(before, stores)
    assert len({age for _, age in found}) > 1
    assert ages(after, divided) == found
