"""The wire format, byte by byte."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.records.schema_registry.framing import (
    FramingError,
    bodies,
    header,
    message_path,
    path_bytes,
    schema_numbers,
)


def test_a_header_is_a_zero_and_a_big_endian_number() -> None:
    assert header(258) == b"\x00\x00\x00\x01\x02"
    values = pa.array([header(258) + b"abc", header(2**31), b"\x01\x00\x00\x00\x01", b"\x00\x00\x00\x01", None, b""])
    assert schema_numbers(values).tolist() == [258, 2**31, -1, -1, -1, -1]
    assert schema_numbers(values.slice(1)).tolist() == [2**31, -1, -1, -1, -1]
    assert bodies(values.slice(0, 2)).to_pylist() == [b"abc", b""]


@given(st.lists(st.binary(max_size=9), max_size=6), st.integers(0, 3))
def test_bodies_are_what_follows_headers(given_bodies: list[bytes], skipped: int) -> None:
    values = pa.array([header(7) + body for body in given_bodies], pa.binary()).slice(skipped)
    assert bodies(values).to_pylist() == given_bodies[skipped:]


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5), st.binary(max_size=3))
def test_paths_come_back(path: list[int], rest: bytes) -> None:
    written = path_bytes(path)
    assert message_path(written + rest) == (tuple(path), len(written))


def test_the_path_to_the_first_message_is_a_zero() -> None:
    assert path_bytes([0]) == b"\x00"
    assert path_bytes([1, 0]) == b"\x04\x02\x00"


@pytest.mark.parametrize(
    "body", [b"", b"\x02", b"\x80", b"\x01", b"\xff\xff\xff\xff\xff\x01", b"\xfe\x01" + b"\x00" * 9]
)
def test_paths_that_are_none(body: bytes) -> None:
    with pytest.raises(FramingError, match="the path to the message cannot be read"):
        message_path(body)
