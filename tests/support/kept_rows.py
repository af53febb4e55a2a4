"""What the stores of a query in the harness hold: the rows of each relation, as a kernel would find them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from watersmeet.columns import RID, TIME
from watersmeet.kernels.api import GONE
from watersmeet.state.manifest import read_manifest
from watersmeet.state.segments import read_segment
from watersmeet.testing.harness import Harness


def kept_rows(harness: Harness, operator: int = 0) -> dict[str, list[dict[str, Any]]]:
    """The rows that hold of each relation of an operator, over all buckets, and their logs of removed rows.

    They are those that count as state: rows below the time from which on a kernel's rows count are left out, as they
    are dropped with the segments that they are in.  A row that a log removes is there, and is removed once.
    """
    spec = harness._operators[operator]
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for bucket in spec.buckets:
        store = harness._stores[spec.name, bucket]
        manifest = read_manifest(store, spec.fingerprint, {})
        live = spec.kernel.live_relations(manifest.frontier)
        of_bucket: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for segment in manifest.segments:
            low = live[segment.relation.removesuffix(GONE)]
            assert segment.high >= low, f"a segment of {segment.relation} with expired rows alone is still there"
            of_bucket[segment.relation] += [row for row in read_segment(store, segment).to_pylist() if row[TIME] >= low]
        for relation, rows in of_bucket.items():
            gone = [row[RID] for row in of_bucket.get(relation + GONE, ())]
            assert len(gone) == len(set(gone)), f"{relation}: a row was removed twice"
            if not relation.endswith(GONE):
                assert set(gone) <= {row[RID] for row in rows}, f"{relation}: a row was removed that was not stored"
                rows = [row for row in rows if row[RID] not in gone]
            found[relation] += rows
    return dict(found)
