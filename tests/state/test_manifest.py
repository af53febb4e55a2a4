"""The manifest: round trip, refusals, and how frontiers move."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.checksums import sealed
from watersmeet.errors import CheckpointError
from watersmeet.kernels.api import FOREVER, NEVER
from watersmeet.state.manifest import Manifest, PartFrontier, read_manifest, write_manifest
from watersmeet.state.segments import Segment
from watersmeet.state.store import MemoryStore

frontiers = st.sampled_from([NEVER, FOREVER]) | st.integers(-50, 50)


def unsealed(manifest: Manifest) -> dict[str, Any]:
    """The members that versions before the checksum wrote."""
    fields: dict[str, Any] = json.loads(manifest.to_json())
    del fields["checksum"], fields["alike"]
    return fields


def stored(manifest: Manifest) -> MemoryStore:
    store = MemoryStore()
    write_manifest(store, manifest)
    return store


def test_all_of_it_comes_back() -> None:
    manifest = Manifest("p", step=3, next_rid=2**40, frontier=-5, counters={"join.late.a": 2})
    manifest.report_frontier(0, "topic-1", 12)
    manifest.parts[1] = {"": PartFrontier(NEVER, idle=True)}
    manifest.segments.append(Segment("3-left-x", "left", 5, 80, -4, 2**62, 1))
    assert read_manifest(stored(manifest), "p", {}) == manifest


def test_a_new_one_waits_for_every_expected_part() -> None:
    manifest = read_manifest(MemoryStore(), "p", {0: ("t-0", "t-1"), 1: ("",)})
    manifest.report_frontier(0, "t-0", 10)
    manifest.report_frontier(1, "", 20)
    manifest.advance({0: 0, 1: 0})
    assert manifest.frontier == NEVER
    manifest.report_frontier(0, "t-1", 15)
    manifest.advance({0: 0, 1: 0})
    assert manifest.frontier == 10


def test_another_plan_is_refused() -> None:
    with pytest.raises(CheckpointError, match="belongs to another query plan") as caught:
        read_manifest(stored(Manifest("old")), "new", {})
    assert "old" in str(caught.value)
    assert "new" in str(caught.value)
    assert caught.value.hint


def test_another_format_is_refused() -> None:
    fields: dict[str, Any] = json.loads(Manifest("p").to_json())
    store = MemoryStore()
    store.put("manifest", json.dumps({**fields, "version": 99}).encode())
    with pytest.raises(CheckpointError, match="state format 99"):
        read_manifest(store, "p", {})


@given(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from("xy"), frontiers), max_size=20),
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
def test_the_frontier_is_the_least_over_parts_and_inputs_and_never_goes_back(
    heard: list[tuple[int, str, int]], lags: tuple[int, int]
) -> None:
    manifest = read_manifest(MemoryStore(), "p", {0: ("x", "y"), 1: ("x", "y")})
    newest = {(i, part): NEVER for i in (0, 1) for part in "xy"}
    for i, part, frontier in heard:
        before = manifest.frontier
        manifest.report_frontier(i, part, frontier)
        manifest.advance(dict(enumerate(lags)))
        newest[i, part] = max(newest[i, part], frontier)
        each = [min(newest[i, "x"], newest[i, "y"]) for i in (0, 1)]
        behind = [f if f in (NEVER, FOREVER) else f - lag for f, lag in zip(each, lags, strict=True)]
        assert manifest.frontier == max(before, min(behind))
    assert manifest.sealed == all(frontier == FOREVER for frontier in newest.values())


def test_an_idle_part_does_not_hold_time_back_until_it_speaks() -> None:
    manifest = read_manifest(MemoryStore(), "p", {0: ("x", "y")})
    manifest.report_frontier(0, "x", 10)
    manifest.parts[0]["y"].idle = True
    manifest.advance({0: 0})
    assert manifest.frontier == 10
    manifest.report_frontier(0, "y", 4)
    manifest.report_frontier(0, "x", 30)
    manifest.advance({0: 0})
    assert manifest.frontier == 10


def test_when_all_are_idle_the_furthest_counts() -> None:
    manifest = Manifest(
        "p",
        frontier=7,
        parts={0: {"x": PartFrontier(9, idle=True), "y": PartFrontier(idle=True)}, 1: {"": PartFrontier(idle=True)}},
    )
    manifest.advance({0: 0, 1: 0})
    assert manifest.frontier == 9


def test_a_manifest_of_the_format_before_is_read() -> None:
    store = MemoryStore()
    manifest = read_manifest(store, "f", {0: ("",)})
    manifest.report_frontier(0, "", 7)
    manifest.advance({0: 2})
    write_manifest(store, manifest)
    fields = unsealed(manifest)
    del fields["own"]
    store.put("manifest", json.dumps({**fields, "version": 1}).encode())
    read = read_manifest(store, "f", {0: ("",)})
    assert (read.frontier, read.own) == (5, {})


def test_an_excluded_input_has_a_frontier_of_its_own_and_holds_nothing_back() -> None:
    manifest = Manifest("f", parts={0: {"": PartFrontier()}, 1: {"": PartFrontier()}})
    manifest.report_frontier(0, "", 9)
    manifest.advance({0: 0, 1: 0}, excluded=[1])
    assert (manifest.frontier, manifest.own) == (9, {0: 9, 1: NEVER})
    manifest.report_frontier(1, "", 4)
    manifest.advance({0: 0, 1: 0}, excluded=[1])
    assert (manifest.frontier, manifest.own) == (9, {0: 9, 1: 4})


def test_a_manifest_of_format_3_has_no_statistics() -> None:
    manifest = Manifest("p", step=3, alike=False)
    fields = unsealed(manifest)
    del fields["statistics"]
    store = MemoryStore()
    store.put("manifest", json.dumps({**fields, "version": 3}).encode())
    assert read_manifest(store, "p", {}) == manifest


def test_a_manifest_of_format_4_has_no_checksum() -> None:
    store = MemoryStore()
    store.put("manifest", json.dumps({**unsealed(Manifest("p", step=3)), "version": 4}).encode())
    assert read_manifest(store, "p", {}) == Manifest("p", step=3, alike=False)


def test_of_a_manifest_of_format_5_it_is_not_known_whether_all_buckets_are_alike() -> None:
    store = MemoryStore()
    store.put("manifest", sealed(json.dumps({**unsealed(Manifest("p", step=3)), "version": 5})))
    assert read_manifest(store, "p", {}) == Manifest("p", step=3, alike=False)


def test_a_manifest_of_format_6_has_no_ties() -> None:
    fields = unsealed(Manifest("p", parts={0: {"a": PartFrontier(5, heard=2)}}))
    del fields["parts"]["0"]["a"]["tie"]
    store = MemoryStore()
    store.put("manifest", sealed(json.dumps({**fields, "version": 6})))
    found = read_manifest(store, "p", {})
    assert found.parts == {0: {"a": PartFrontier(5, heard=2)}}
    found.report_frontier(0, "a", 5, "07")
    assert found.tie(0, 5) == b"\x07"


def test_the_tie_of_an_input_is_that_of_its_slowest_part() -> None:
    manifest = Manifest("p")
    for part, frontier, tie in (("a", 5, "07"), ("b", 5, "0a"), ("c", 6, "01"), ("b", 5, "09"), ("a", 4, "ff")):
        manifest.report_frontier(0, part, frontier, tie)
    assert (manifest.tie(0, 5), manifest.tie(0, 6)) == (b"\x07", b"")
    manifest.report_frontier(0, "a", 6, "00")
    manifest.parts[0]["b"].idle = True
    assert manifest.tie(0, 6) == b"\x00"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"next_rid":7', b'"next_rid":6'),
        (b'"version":7', b'"version":4'),
        (b'"checksum"', b'"checksul"'),
        (b'"version"', b'"versiom"'),
        (b"}", b""),
        (b"{", b"[" * 100_000),
        (b"p", b"\xff"),
    ],
    ids=["value", "version", "checksum", "name", "end", "nesting", "text"],
)
def test_a_manifest_that_has_changed_is_refused(old: bytes, new: bytes) -> None:
    store = MemoryStore()
    store.put("manifest", Manifest("p", next_rid=7).to_json().replace(old, new))
    with pytest.raises(CheckpointError, match="the state is damaged"):
        read_manifest(store, "p", {})
