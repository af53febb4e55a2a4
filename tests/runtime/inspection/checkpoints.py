"""Checkpoints to read: one that Spark has written, and one of a query in real time."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pyarrow as pa

from watersmeet.checksums import sealed
from watersmeet.columns import RID, TIME
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.runtime.plan_file import PlanFile
from watersmeet.runtime.real_time.epochs import RunStart, file_name
from watersmeet.settings.query_settings import REAL_TIME
from watersmeet.state.epoch_store import EpochStore
from watersmeet.state.manifest import Manifest, write_manifest
from watersmeet.state.segments import write_segment

#: ``SELECT … FROM orders o JOIN payments p ON o.id = p.id WITHIN INTERVAL '1' DAY SETTINGS buckets = 4``, three
#: batches of 300 orders and 200 payments with ``id = i % 37``.
MICRO_BATCHES = "into_paid_from_orders_payments"
LIVE = "live"


def unpack_micro_batches(folder: Path) -> Path:
    """Put the checkpoint that Spark has written into a folder of checkpoints."""
    with tarfile.open(Path(__file__).parent / "micro_batches.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / MICRO_BATCHES


def write_live(folder: Path) -> Path:
    """Write the checkpoint of a query in real time: two epochs of one run, a value of the first still live."""
    path = folder / LIVE
    described = {
        "input 1": "o: $t int64, o:id int64",
        "input 2": "p: $t int64, p:id int64",
        "input 1 is made of": "('orders', 'n', 'row', {}, {})",
        "IntervalJoin keys": "(Key(left='o:id', right='p:id', null_safe=False),)",
        "buckets": "(0, 3)",
        "fingerprint": "live",
    }
    plan = PlanFile(mode=REAL_TIME, buckets=(0, 3), operators={"join_1": described})
    files = {
        "plan.json": sealed(plan.model_dump_json()),
        "spark/metadata": b'{"id":"5a0e7a2c-6e53-43a5-a1f1-000000000000"}',
        "epochs/runs/000000.json": sealed(RunStart(first=0, run=0, tasks={"o": 1}).model_dump_json()),
        "control/000000000000.json": Event(EventKind.END).to_json(),
    }
    for epoch in range(2):
        files |= {f"spark/offsets/{epoch}": b'v1\n{"a":1}\n{"o":1}', f"spark/commits/{epoch}": b"v1\n{}"}
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    for bucket in (0, 3):
        place = str(path / f"epochs/operators/join_1/{bucket}")
        store = EpochStore(place, None)
        manifest = Manifest("live", step=1, frontier=40)
        for epoch, side in enumerate(("left", "right")):
            table = pa.table({TIME: [50, 60], RID: [1, 2], f"{'op'[epoch]}:id": [bucket, 7]})
            manifest.segments.append(write_segment(store, epoch, side, table))
            write_manifest(store, manifest)
            store.write(file_name(epoch, 0))
            store = EpochStore(place, file_name(epoch, 0))
    return path
