"""What a worker makes of records: each row has the place and the time of its own record."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from watersmeet.columns import PART, SEQUENCE, TP_DELTA
from watersmeet.engine.projection import Changes, Projection
from watersmeet.engine.specs import PackSpec
from watersmeet.records.debezium import ChangeTime, debezium_decoder
from watersmeet.runtime.exchange import Exchange
from watersmeet.runtime.worker_records import RecordRows
from watersmeet.runtime.worker_tasks import PackTask

COLUMNS = pa.schema([("id", pa.int64()), ("ts", pa.int64())])
RAW = pa.schema([("value", pa.binary())])


class Topic:
    """Records whose places are their numbers."""

    def __init__(self, values: Sequence[bytes | None]) -> None:
        self.values = pa.array(values, pa.binary())

    def hidden(self, names: Sequence[str], numbers: np.ndarray) -> pa.Table:
        places = [str(number).encode() for number in numbers]
        columns = {SEQUENCE: pa.array(places, pa.binary()), PART: pa.repeat("t-0", len(numbers))}
        return pa.table({name: columns[name] for name in names})

    def raw(self, numbers: np.ndarray) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self.values.take(pa.array(numbers))], schema=RAW)


def record_rows() -> RecordRows:
    decoder = debezium_decoder(COLUMNS, ChangeTime("ts", 1000), keeps_before=True)
    assert decoder is not None
    projection = Projection(
        time="ts",
        scale=1000,
        taken=(("id", "id", pa.int64()), (TP_DELTA, TP_DELTA, pa.int8())),
        hashes=(),
        reads=("id", "ts"),
        record=("id", "ts"),
        sequence="$seq",
        changes=Changes(("id",), declares_delta=True),
    )
    spec = PackSpec(source="t", operator="join-0", input=0, schema=COLUMNS, buckets=(0,), delay=0, hashes=())
    return RecordRows(decoder, projection, PackTask(spec, Exchange(None), None), RAW, True)


def change(op: str, **images: object) -> bytes:
    return json.dumps({"op": op, "before": None, "after": None, **images}).encode()


def test_as_many_rows_as_records_do_not_mean_a_row_for_each() -> None:
    """An update has two rows, a record without a value has none."""
    row = {"id": 1, "ts": 5}
    topic = Topic([change("u", before=row, after=row), None, change("c", after={"id": 2, "ts": 6})])
    rows, left = record_rows().split(topic)
    assert rows is not None
    assert rows["$seq"].to_pylist() == [b"0", b"0", b"2"]
    assert rows[TP_DELTA].to_pylist() == [-1, 1, 1]
    assert rows["$part"].to_pylist() == ["t-0"] * 3
    assert left.tolist() == []


def test_rows_to_quarantine_are_left_to_spark_with_their_whole_record() -> None:
    row = {"id": 1, "ts": 5}
    topic = Topic([change("u", before={"id": None, "ts": 5}, after=row), change("c", after=row), change("x")])
    rows, left = record_rows().split(topic)
    assert rows is not None
    assert rows["$seq"].to_pylist() == [b"1"]
    assert left.tolist() == [0, 2]
