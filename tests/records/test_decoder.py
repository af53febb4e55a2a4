"""Blocks of records that a decoder takes as a whole or not at all."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from watersmeet.records.decoder import Block, decode_blocks

RECORDS = pa.array([str(n).encode() for n in range(5_000)], pa.binary())
NUMBERS = np.arange(len(RECORDS))


def test_bad_records_are_left_and_the_others_keep_their_numbers() -> None:
    bad = {b"7", b"8", b"4000"}

    def decode(values: pa.Array) -> pa.Table | None:
        return None if bad & set(values.to_pylist()) else pa.table({"v": values})

    found = decode_blocks(RECORDS, NUMBERS[5:], decode)
    assert found.left.tolist() == [0, 1, 2, 3, 4, 7, 8, 4000]
    assert found.rows["v"].to_pylist() == [str(n).encode() for n in found.records]


def test_bad_records_that_are_named_are_left_at_once() -> None:
    """Thousands of them do not keep the others from being decoded."""
    calls = 0

    def decode(values: pa.Array) -> Block:
        nonlocal calls
        calls += 1
        is_bad = np.array([each.endswith(b"0") for each in values.to_pylist()], bool)
        return is_bad if is_bad.any() else pa.table({"v": values})

    found = decode_blocks(RECORDS, NUMBERS, decode)
    assert found.left.tolist() == list(range(0, 5_000, 10))
    assert found.rows["v"].to_pylist() == [str(n).encode() for n in found.records]
    assert calls == 2


def test_some_tens_of_bad_records_are_found() -> None:
    bad = {str(n).encode() for n in range(0, 5_000, 125)}

    def decode(values: pa.Array) -> Block:
        return None if bad & set(values.to_pylist()) else pa.table({"v": values})

    assert decode_blocks(RECORDS, NUMBERS, decode).left.tolist() == list(range(0, 5_000, 125))


def test_records_of_another_format_are_given_up() -> None:
    """Not each of thousands is tried."""
    sizes: list[int] = []

    def decode(values: pa.Array) -> pa.Table | None:
        sizes.append(len(values))
        return None if len(values) else pa.table({"v": values})

    found = decode_blocks(RECORDS, NUMBERS, decode)
    assert (found.rows.num_rows, len(found.left)) == (0, len(RECORDS))
    assert len(sizes) < 100
