"""Which results the sent records must have, and how long after its records each result came.

A result's time begins with the later of its records.  Only records sent in the measured time have a latency, but the
results of all records are checked: those of the warm-up too.  In an upsert topic an update may be passed over for a
newer one of its key; its latency ends with the first result that shows it or a newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.latency.queries import PARTITIONS, WINDOW_MS, Kind, Query

#: In place of the number of a partner that is missing.
NONE = -1
_NEVER = np.iinfo(np.int64).max
_NS_A_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Sent:
    """The records of a stream: the places in these arrays are their numbers."""

    key: np.ndarray
    at_ns: np.ndarray
    event_ms: np.ndarray


@dataclass(frozen=True, slots=True)
class Results:
    """The rows that were read from the result topic, in that order; ``n`` are the counts of an aggregate.

    What a result lacks is ``NONE``; a delete lacks all but its key.
    """

    at_ns: np.ndarray
    l_id: np.ndarray
    r_id: np.ndarray
    l_key: np.ndarray
    n: np.ndarray


@dataclass(frozen=True, slots=True)
class Measured:
    """The measured time: the first moment that counts, and the first after it that does not."""

    start_ns: int
    end_ns: int

    def covers(self, at_ns: np.ndarray) -> np.ndarray:
        """Return which moments are in it."""
        return np.asarray((at_ns >= self.start_ns) & (at_ns < self.end_ns))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came.

    ``expected`` and ``received`` count results of records sent in the measured time; ``missing``, ``unexpected`` and
    ``repeated`` count results of any records.  ``latencies`` are in milliseconds, by what they are measured from.
    """

    expected: int
    received: int
    missing: int
    unexpected: int
    repeated: int
    latencies: Mapping[str, np.ndarray]

    @property
    def is_right(self) -> bool:
        """Whether the results are exactly those expected."""
        return not (self.missing or self.unexpected or self.repeated)


def judged(query: Query, sent: Mapping[str, Sent], results: Results, measured: Measured) -> Outcome:
    """Compare results with the records of each side."""
    judge: Callable[[Query, Mapping[str, Sent], Results, Measured], Outcome]
    match query.kind:
        case Kind.PAIRS:
            judge = _pairs
        case Kind.VERSIONS:
            judge = _versions
        case Kind.CHANGES | Kind.GROUPS:
            judge = _upserts
        case Kind.ROWS:
            judge = _rows
    return judge(query, sent, results, measured)


# -- results that are only added ---------------------------------------------------------------------------------------


def pairs_in_window(left: Sent, right: Sent, window_ms: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of all pairs of equal keys whose event times differ by at most ``window_ms``."""
    order, codes, code = _by_key_and_time(left, right)
    first = np.searchsorted(codes, code(left.key, left.event_ms - window_ms), "left")
    last = np.searchsorted(codes, code(left.key, left.event_ms + window_ms), "right")
    counts = last - first
    l_id = np.repeat(np.arange(len(left.key)), counts)
    place = np.arange(len(l_id)) - np.repeat(np.cumsum(counts) - counts, counts)
    return l_id, order[np.repeat(first, counts) + place]


def versions_as_of(left: Sent, right: Sent) -> np.ndarray:
    """Return for each left row the number of the newest right row of its key that is not later, or ``NONE``."""
    order, codes, code = _by_key_and_time(left, right)
    place = np.searchsorted(codes, code(left.key, left.event_ms), "right") - 1
    found = order[np.maximum(place, 0)]
    return np.where((place >= 0) & (right.key[found] == left.key), found, NONE)


def settled_ns(right: Sent, event_ms: np.ndarray) -> np.ndarray:
    """Return when all partitions had a later record than each of the event times: no older version can come then."""
    found = np.zeros(len(event_ms), np.int64)
    for partition in range(PARTITIONS):
        there = right.key % PARTITIONS == partition
        at_ns = np.append(right.at_ns[there], _NEVER)
        found = np.maximum(found, at_ns[np.searchsorted(right.event_ms[there], event_ms, "right")])
    return found


def _pairs(query: Query, sent: Mapping[str, Sent], results: Results, measured: Measured) -> Outcome:
    left, right = sent["l"], sent["r"]
    l_id, r_id = pairs_in_window(left, right, WINDOW_MS)
    if query.pads:
        alone = np.setdiff1d(np.arange(len(left.key)), l_id)
        l_id, r_id = np.append(l_id, alone), np.append(r_id, np.full(len(alone), NONE))
    later = _later(left, right, l_id, r_id)
    truth = _Truth(l_id, r_id, later)
    came, outcome = truth.compared(results, measured)
    padded = truth.r_id[came.result] == NONE
    closed_ns = (WINDOW_MS + query.delay_ms) * _NS_A_MS
    late_ms = (came.at_ns - truth.later_ns[came.result]) / _NS_A_MS
    latencies = {"joined": late_ms[~padded]}
    if query.pads:
        latencies["padded"] = late_ms[padded] - closed_ns / _NS_A_MS
    return outcome(latencies)


def _versions(query: Query, sent: Mapping[str, Sent], results: Results, measured: Measured) -> Outcome:
    left, right = sent["l"], sent["r"]
    l_id, r_id = np.arange(len(left.key)), versions_as_of(left, right)
    truth = _Truth(l_id, r_id, _later(left, right, l_id, r_id))
    came, outcome = truth.compared(results, measured)
    settled = settled_ns(right, left.event_ms + query.delay_ms)[truth.l_id[came.result]]
    return outcome(
        {
            "joined": (came.at_ns - truth.later_ns[came.result]) / _NS_A_MS,
            "settled": (came.at_ns - settled) / _NS_A_MS,
        }
    )


def _rows(_: Query, sent: Mapping[str, Sent], results: Results, measured: Measured) -> Outcome:
    left = sent["l"]
    l_id = np.arange(len(left.key))
    truth = _Truth(l_id, np.full(len(l_id), NONE), left.at_ns)
    came, outcome = truth.compared(results, measured)
    return outcome({"passed": (came.at_ns - truth.later_ns[came.result]) / _NS_A_MS})


@dataclass(frozen=True, slots=True)
class _Came:
    """Results of records in the measured time: their places in the truth, and when they came."""

    result: np.ndarray
    at_ns: np.ndarray


class _Truth:
    """All results that the records have, and when the later record of each was sent."""

    def __init__(self, l_id: np.ndarray, r_id: np.ndarray, later_ns: np.ndarray) -> None:
        codes = _code(l_id, r_id)
        order = np.argsort(codes)
        self.l_id, self.r_id, self.later_ns = l_id[order], r_id[order], later_ns[order]
        self._codes = codes[order]

    def compared(
        self, results: Results, measured: Measured
    ) -> tuple[_Came, Callable[[Mapping[str, np.ndarray]], Outcome]]:
        """Return the results that count, and what makes an outcome of their latencies."""
        codes, first = np.unique(_code(results.l_id, results.r_id), return_index=True)
        is_right = np.isin(codes, self._codes)
        place = np.searchsorted(self._codes, codes[is_right])
        has_come = np.zeros(len(self._codes), bool)
        has_come[place] = True
        counts = measured.covers(self.later_ns)
        at_ns = results.at_ns[first[is_right]]

        def outcome(latencies: Mapping[str, np.ndarray]) -> Outcome:
            return Outcome(
                expected=int(counts.sum()),
                received=int((counts & has_come).sum()),
                missing=int(((self.later_ns < measured.end_ns) & ~has_come).sum()),
                unexpected=int((~is_right).sum()),
                repeated=len(results.l_id) - len(codes),
                latencies=latencies,
            )

        shown = counts[place]
        return _Came(place[shown], at_ns[shown]), outcome


def _later(left: Sent, right: Sent, l_id: np.ndarray, r_id: np.ndarray) -> np.ndarray:
    """Return when the later record of each result was sent."""
    of_right = np.where(r_id == NONE, 0, right.at_ns[np.maximum(r_id, 0)])
    return np.asarray(np.maximum(left.at_ns[l_id], of_right))


def _code(l_id: np.ndarray, r_id: np.ndarray) -> np.ndarray:
    return np.asarray((l_id << 32) + r_id + 1)


def _by_key_and_time(
    left: Sent, right: Sent
) -> tuple[np.ndarray, np.ndarray, Callable[[np.ndarray, np.ndarray], np.ndarray]]:
    """Return the order of the right rows by key, time and number, their codes, and what makes a code."""
    least_key = min(left.key.min(), right.key.min())
    start, end = (pick([pick(side.event_ms) for side in (left, right)]) for pick in (np.min, np.max))
    span = end - start + 3  # one place before the first event time, and one behind the last

    def code(key: np.ndarray, event_ms: np.ndarray) -> np.ndarray:
        return np.asarray((key - least_key) * span + np.clip(event_ms - start, -1, span - 2) + 1)

    codes = code(right.key, right.event_ms)
    order = np.argsort(codes, kind="stable")
    return order, codes[order], code


# -- results that replace each other -----------------------------------------------------------------------------------


def _upserts(query: Query, sent: Mapping[str, Sent], results: Results, measured: Measured) -> Outcome:
    is_row = results.l_id != NONE
    rows = Results(*(each[is_row] for each in (results.at_ns, results.l_id, results.r_id, results.l_key, results.n)))
    wrong = np.zeros(len(rows.l_id), bool)
    expected = received = 0
    missing = _deleted_keys(results)
    latencies = []
    for side in query.sides:
        records, ids = sent[side], rows.l_id if side == "l" else rows.r_id
        partner_ns = _first_partner_ns(records, [each for name, each in sent.items() if name != side])
        is_named = ~_is_wrong(records, rows, ids)
        wrong |= ~is_named
        shown_ns = _first_shown_ns(records, ids[is_named], rows.at_ns[is_named])
        counts = measured.covers(records.at_ns) & (partner_ns < records.at_ns)
        has_come = shown_ns < _NEVER
        expected += int(counts.sum())
        received += int((counts & has_come).sum())
        missing += int(((partner_ns < _NEVER) & ~has_come).sum())
        latencies.append((shown_ns - records.at_ns)[counts & has_come] / _NS_A_MS)
    if query.kind is Kind.GROUPS:
        wrong |= rows.n != _places(sent["l"])[np.where(wrong, 0, rows.l_id)]
    return Outcome(
        expected=expected,
        received=received,
        missing=missing,
        unexpected=int(wrong.sum()),
        repeated=len(rows.l_id) - len(np.unique(_code(rows.l_id, rows.r_id))),
        latencies={"joined": np.concatenate(latencies)},
    )


def _is_wrong(records: Sent, rows: Results, ids: np.ndarray) -> np.ndarray:
    """Return which results name a record of another key, or an older one than a result of their key before."""
    wrong = (ids < 0) | (ids >= len(records.key))
    wrong |= records.key[np.where(wrong, 0, ids)] != rows.l_key
    order = np.argsort(rows.l_key, kind="stable")
    keys, in_order = rows.l_key[order], ids[order]
    wrong[order[1:]] |= (keys[1:] == keys[:-1]) & (in_order[1:] < in_order[:-1])
    return np.asarray(wrong)


def _first_shown_ns(records: Sent, ids: np.ndarray, at_ns: np.ndarray) -> np.ndarray:
    """Return when the first result came that shows each record or a newer one of its key; ``_NEVER`` if none did."""
    if not len(ids):
        return np.full(len(records.key), _NEVER)
    start = at_ns.min()
    span = at_ns.max() - start + 2
    shown = np.full(len(records.key), span - 1)
    np.minimum.at(shown, ids, at_ns - start)
    # from the newest record of the last key to the oldest of the first: the times of a key are above those of the next
    _, number = np.unique(records.key, return_inverse=True)
    order = np.argsort(number, kind="stable")[::-1]
    above = number[order] * span
    first = np.empty_like(shown)
    first[order] = np.minimum.accumulate(shown[order] + above) - above
    return np.where(first == span - 1, _NEVER, first + start)


def _first_partner_ns(records: Sent, others: Sequence[Sent]) -> np.ndarray:
    """Return when each record's key was first sent on the other side; ``_NEVER`` if it was not, 0 without a side."""
    found = np.zeros(len(records.key), np.int64)
    for other in others:
        keys, first = np.unique(other.key, return_index=True)
        place = np.minimum(np.searchsorted(keys, records.key), len(keys) - 1)
        found = np.where(keys[place] == records.key, other.at_ns[first[place]], _NEVER)
    return found


def _places(records: Sent) -> np.ndarray:
    """Return how many records of its key each record is the last of."""
    order = np.argsort(records.key, kind="stable")
    _, first, counts = np.unique(records.key[order], return_index=True, return_counts=True)
    found = np.empty(len(order), np.int64)
    found[order] = np.arange(len(order)) - np.repeat(first, counts) + 1
    return found


def _deleted_keys(results: Results) -> int:
    """Return the number of keys whose last result is a delete."""
    _, from_end = np.unique(results.l_key[::-1], return_index=True)
    return int((results.l_id[::-1][from_end] == NONE).sum())
