"""Damage to bytes."""

from __future__ import annotations

import random

_ODD = (
    b"\x00", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\n", b"\r\n", b'"', b"\\", b"\\ud800", b"{",
    b"}", b"[" * 600, b"9" * 400, b"1e999", b"-0", b"NaN", b"null", b",",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", b"\xfe\xff\xff\xff\x0f",
)  # fmt: skip


def damaged(rng: random.Random, octets: bytes, other: bytes = b"") -> bytes:
    """The bytes with one to three flaws; ``other`` are bytes of the same kind, to splice with."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(octets) + 1)
        match rng.randrange(7):
            case 0:
                octets = octets[:at]
            case 1:
                octets = octets[:at] + octets[at + rng.choice((1, 1, 2, 9)) :]
            case 2 if at < len(octets):
                octets = octets[:at] + bytes([octets[at] ^ (1 << rng.randrange(8))]) + octets[at + 1 :]
            case 3:
                octets = octets[:at] + rng.choice(_ODD) + octets[at + rng.choice((0, 1)) :]
            case 4:
                octets = octets[:at] + octets[at : at + rng.choice((1, 5, 50))] * 2 + octets[at:]
            case 5:
                octets = octets[:at] + other[rng.randrange(len(other) + 1) :]
            case _:
                octets = octets[:at] + rng.randbytes(rng.choice((1, 4, 16))) + octets[at:]
    return octets
