"""Which values are valid UTF-8, against Python's own decoder."""

from __future__ import annotations

import itertools
import random

import pyarrow as pa

from watersmeet.records.utf8 import is_utf8

EDGES = bytes.fromhex("00 61 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 f8 ff")


def decodes(octets: bytes | None) -> bool:
    try:
        return octets is None or octets.decode() is not None
    except UnicodeDecodeError:
        return False


def check(values: list[bytes | None]) -> None:
    assert is_utf8(pa.array(values, pa.binary())).tolist() == [decodes(value) for value in values]


def test_all_short_sequences_of_edges() -> None:
    check([bytes(each) for length in range(4) for each in itertools.product(EDGES, repeat=length)])
    check([bytes([*each, 0x80, 0xBF]) for each in itertools.product(EDGES, repeat=2)])


def test_long_sequences_nulls_and_slices() -> None:
    rng = random.Random(3)
    values: list[bytes | None] = []
    for _ in range(20_000):
        text = "".join(rng.choices("aé€𝄞\uffff\U0010ffff", k=rng.randrange(4))).encode()
        values.append(rng.choice([text, text[:-1], text[1:], text + bytes(rng.choices(EDGES, k=4)), None]))
    check(values)
    assert is_utf8(pa.array(values, pa.binary())[7:99]).tolist() == [decodes(value) for value in values[7:99]]


def test_nothing_and_valid_text() -> None:
    check([])
    check([None, b"", "aé€𝄞".encode()])
    check([b"\xe2", b"\x82\xac"])
