"""Keys whose rows alone are more than a step may take, divided into several pieces.

How they are divided follows from the rows alone, in whatever frames and order they arrive: so every attempt at a batch
divides them alike.

Rows that may be retracted  by ``$id``; without one, by all values but weight and time.  So a row and its retraction
                            stay together
Other rows                  by time, since partners are close in time; rows of one span of time by all values
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import ID, TIME, WEIGHT
from watersmeet.engine.row_hashes import hash_sql, of_rows
from watersmeet.kernels.api import FOREVER, NEVER
from watersmeet.kernels.row_bytes import row_bytes_sql

#: Bytes are counted by so many parts of the keys' hashes: keys of one part are divided together.
_SLOTS = 1 << 14
#: The times of each divided part are counted in so many spans.
_SPANS = 256


@dataclass(frozen=True, slots=True)
class Division:
    """The ``pieces`` of divided keys, which have a ``share`` of the bytes of all rows.

    ``place`` numbers the divided slots (-1: not divided).  Each has spans of ``width`` from the time ``since`` on; the
    rows of a span have ``counts`` pieces, of which ``starts`` is the first.
    """

    place: np.ndarray
    since: np.ndarray
    width: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    pieces: int
    share: float

    def numbers(self, table: pa.Table, hashes: np.ndarray) -> np.ndarray:
        """Return the piece of each row, by the hashes of their keys; -1 where a key is not divided."""
        place: np.ndarray = self.place[_slots(hashes)]
        if not (place >= 0).any():
            return place
        spans = self.spans(table, place)
        counts = np.where(place >= 0, self.counts[place, spans], 1)
        numbers = self.starts[place, spans]
        if (counts > 1).any():
            numbers = numbers + (_identities(table) % counts.astype(np.uint64)).astype(np.int64)
        found: np.ndarray = np.where(place >= 0, numbers, -1)
        return found

    def spans(self, table: pa.Table, place: np.ndarray) -> np.ndarray:
        """Return the span of each row's time; the first one if it has none."""
        if (times := _times(table)) is None:
            return np.zeros(len(place), np.int64)
        after = np.maximum(times, self.since[place]) - self.since[place]
        spans: np.ndarray = np.clip(after // self.width[place], 0, _SPANS - 1)
        return spans


_NONE = np.zeros((0, 0), np.int64)
#: No key is divided.
UNDIVIDED = Division(np.full(_SLOTS, -1), _NONE, _NONE, _NONE, _NONE, pieces=0, share=0.0)


def divided(rows: Callable[[], Iterable[tuple[pa.Table, Sequence[str]]]], most: int) -> Division:
    """Return how to divide keys whose rows have more than ``most`` bytes.

    ``rows`` reads the rows of a batch, table by table, each with the columns of its key.
    """
    nbytes, since, until = np.zeros(_SLOTS, np.int64), np.full(_SLOTS, FOREVER), np.full(_SLOTS, NEVER)
    for table, slots, sizes in _measured(rows()):
        nbytes += _sums(slots, sizes, _SLOTS)
        if (times := _times(table)) is not None:
            is_dated = times > NEVER
            np.minimum.at(since, slots[is_dated], times[is_dated])
            np.maximum.at(until, slots[is_dated], times[is_dated])
    (large,) = np.nonzero(nbytes > most)
    if not len(large):
        return UNDIVIDED
    place = np.full(_SLOTS, -1)
    place[large] = np.arange(len(large))
    since, until = np.minimum(since, until)[large], until[large]
    nothing = np.zeros((len(large), _SPANS), np.int64)
    whole = Division(place, since, (until - since) // _SPANS + 1, nothing, nothing, 0, 0.0)
    by_span = nothing.copy()
    for table, slots, sizes in _measured(rows()):
        own = place[slots]
        cells = own * _SPANS + whole.spans(table, own)
        by_span += _sums(cells[own >= 0], sizes[own >= 0], by_span.size).reshape(by_span.shape)
    starts, counts, pieces = _allocated(by_span, most)
    share = float(nbytes[large].sum() / nbytes.sum())
    return Division(place, since, whole.width, starts, counts, pieces, share)


def _allocated(nbytes: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the first piece and the number of pieces of each span of each slot, and the number of all pieces.

    Spans that follow each other share a piece; one of more than ``most`` bytes has several of its own.
    """
    starts, counts, pieces = np.zeros_like(nbytes), np.ones_like(nbytes), 0
    for place, of_spans in enumerate(nbytes.tolist()):
        held = most  # of the piece that is filled: none yet
        for span, size in enumerate(of_spans):
            if not size:
                continue
            if size > most:
                starts[place, span], counts[place, span] = pieces, -(-size // most)
                pieces += counts[place, span]
                held = most
                continue
            if held + size > most:
                pieces, held = pieces + 1, 0
            starts[place, span] = pieces - 1
            held += size
    return starts, counts, int(pieces)


def _measured(
    rows: Iterable[tuple[pa.Table, Sequence[str]]],
) -> Iterator[tuple[pa.Table, np.ndarray, np.ndarray]]:
    """Yield tables with the slot and the bytes of each row."""
    for table, columns in rows:
        found = of_rows(table, hash=hash_sql(table, columns), bytes=f"CAST({row_bytes_sql(table.schema)} AS BIGINT)")
        yield table, _slots(found["hash"]), found["bytes"]


def _sums(places: np.ndarray, sizes: np.ndarray, length: int) -> np.ndarray:
    return np.bincount(places, sizes, length).astype(np.int64)


def _slots(hashes: np.ndarray) -> np.ndarray:
    # by other bits than those that number pieces by hash
    return ((hashes >> np.uint64(40)) % np.uint64(_SLOTS)).astype(np.int64)


def _times(table: pa.Table) -> np.ndarray | None:
    """Return the times of rows (``NEVER``: none); None where rows are not divided by time."""
    names = table.column_names
    if ID in names or WEIGHT in names or TIME not in names:
        return None
    times: np.ndarray = pc.fill_null(table[TIME], NEVER).to_numpy()
    return times


def _identities(table: pa.Table) -> np.ndarray:
    """Return a hash of each row that its retraction has too."""
    names = table.column_names
    changes = ID in names or WEIGHT in names
    columns = [ID] if ID in names else [name for name in names if not (changes and name in (WEIGHT, TIME))]
    return of_rows(table, hash=hash_sql(table, columns))["hash"]
