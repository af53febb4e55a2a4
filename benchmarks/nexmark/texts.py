"""Random texts, as Arrow columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SHORTEST = 3
_SPECIAL = 13
#: Fillers are up to a fifth shorter or longer than they are on average.
_SPREAD = 0.2


class Texts:
    """Makes texts with a generator of random numbers."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def chosen(self, values: Sequence[str], count: int) -> pa.Array:
        """Texts from a list."""
        return pa.array(values).take(pa.array(self.rng.integers(0, len(values), count)))

    def digits(self, length: int, count: int) -> pa.Array:
        """Numbers with leading zeros."""
        letters = self.rng.integers(ord("0"), ord("9") + 1, length * count, dtype=np.uint8)
        return _column(letters, np.full(count, length))

    def words(self, limit: int, count: int, special: str = " ") -> pa.Array:
        """Texts of at least three letters, and fewer than ``limit``; one in 13 inner ones is ``special``."""
        lengths = self.rng.integers(_SHORTEST, limit, count)
        letters = self._letters(int(lengths.sum()))
        ends = np.cumsum(lengths)
        inner = self.rng.integers(0, _SPECIAL, len(letters)) == 0
        inner[ends - 1] = inner[ends - lengths] = False
        letters[inner] = ord(special)
        return _column(letters, lengths)

    def filler(self, average: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
        """Texts of letters, as long on average as said for each."""
        average = np.maximum(average, 0)
        spread = np.round(average * _SPREAD).astype(np.int64)
        lengths = average - spread + self.rng.integers(0, np.maximum(2 * spread, 1), dtype=np.int64)
        return _column(self._letters(int(lengths.sum())), lengths)

    @staticmethod
    def joined(separator: str, *parts: pa.Array | str) -> pa.Array:
        """The parts of each row, one after the other."""
        return pc.binary_join_element_wise(*parts, separator)

    @staticmethod
    def sizes(column: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The bytes of each value; a number or time has 8."""
        if not pa.types.is_string(column.type):
            return np.full(len(column), 8)
        found: np.ndarray[Any, np.dtype[np.int64]] = pc.binary_length(column).to_numpy().astype(np.int64)
        return found

    def _letters(self, count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        return self.rng.integers(ord("a"), ord("z") + 1, count, dtype=np.uint8)


def _column(letters: np.ndarray[Any, np.dtype[np.uint8]], lengths: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    """Texts that stand one after the other in ``letters``."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(letters))
