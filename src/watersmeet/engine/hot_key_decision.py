"""Which keys are hot: decided by one bucket after each batch, from what all packing tasks report.

A key is cold once it has not been hot for ``COLD_BATCHES`` batches::

    not hot so far   hot, and its other side not far ahead       →  COPIED
    COPIED           cold                                        →  not hot: nothing has been spread
                     rows that are only at home have expired     →  SPREAD
    SPREAD           cold                                        →  GATHERED
    GATHERED         spread rows have expired                    →  not hot
                     hot again                                   →  SPREAD
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from watersmeet.engine.hot_keys import MIN_SHARE, HotKey, HotKeyLog, HotKeys, Phase, SpreadRule
from watersmeet.engine.inbox import Inbox
from watersmeet.engine.specs import OperatorSpec
from watersmeet.errors import CheckpointError
from watersmeet.kernels.api import FOREVER, NEVER
from watersmeet.state.manifest import Manifest

#: A key that has not been hot for this many batches returns to its home bucket.
COLD_BATCHES = 16
#: At most this many rows are copied for each row that is spread.
_MAX_COPIES = 2
#: An input is far ahead if its newest row is more than this many times the usual reach after the expired rows.
_FAR = 4


@dataclass(slots=True)
class RowCounts:
    """One input's rows in a batch, as all packing tasks report them: ``keys`` maps hashes to approximate rows."""

    rows: int
    keys: dict[int, int]

    def add(self, rows: int, keys: Mapping[int, int]) -> None:
        """Add the report of one task."""
        self.rows += rows
        for key, count in keys.items():
            self.keys[key] = self.keys.get(key, 0) + count


def decide_hot_keys(spec: OperatorSpec, manifest: Manifest, inbox: Inbox, log: HotKeyLog | None) -> None:
    """Log the keys that are hot in the batches to come.  Only the operator's first bucket may call this.

    Raises ``CheckpointError`` if keys were spread before and the log is missing or is another one.
    """
    if log is None or spec.spread is None:
        if manifest.hot_keys is not None:
            raise CheckpointError(
                f"{spec.name} has spread the rows of hot keys over its buckets, and this run would not find them all",
                hint="resume the query where it ran before, with SETTINGS skew = 'spread'",
            )
        return
    before = log.read()
    for batch in (before.batch, *(report.hot_keys for _, report in inbox.reports)):
        if batch != manifest.hot_keys:
            raise CheckpointError(
                f"the hot keys of {spec.name} are not those that it has noted: its state is of the entry of batch "
                f"{manifest.hot_keys}, and the newest file that all its tasks see is of batch {batch}",
                hint="restore the folder hot_keys of its checkpoint where all workers can read it, or start on a new "
                "checkpoint with SETTINGS skew = 'keep'",
            )
    counts = {number: RowCounts(0, {}) for number in range(len(spec.inputs))}
    for number, report in inbox.reports:
        counts[number].add(report.rows, report.frequent)
    newest = [manifest.newest.get(number, NEVER) for number in range(len(spec.inputs))]
    closed = list(spec.kernel.live_relations(manifest.frontier).values())
    keys = next_keys(before.keys, counts, newest, closed, spec.spread, len(spec.buckets))
    after = log.append(before, keys, (*newest, *closed))
    manifest.hot_keys = after.batch
    if after.batch is not None:
        manifest.counters[f"{spec.name}.hot_keys"] = len(after.keys)


def next_keys(
    keys: HotKeys,
    counts: Mapping[int, RowCounts],
    newest: Sequence[int],
    closed: Sequence[int],
    rule: SpreadRule,
    buckets: int,
) -> dict[int, HotKey]:
    """Return the hot keys after a batch.

    ``newest`` is the newest event time of each input so far (``FOREVER``: unknown).  Rows of an input before ``closed``
    are past.
    """
    hot = _hot(counts, rule, buckets, range(len(closed)))
    far = {
        input
        for input in range(len(closed))
        if newest[input] == FOREVER or newest[input] - closed[input] > _FAR * rule.reach
    }
    moved = {key: _next_phase(each, hot.get(key), newest, closed) for key, each in keys.items()}
    begun = {
        key: HotKey(input, Phase.COPIED, max(newest[other] for other in _others(input, closed)))
        for key, input in hot.items()
        if key not in keys and far.isdisjoint(_others(input, closed))
    }
    return {**{key: each for key, each in moved.items() if each is not None}, **begun}


def _hot(counts: Mapping[int, RowCounts], rule: SpreadRule, buckets: int, inputs: Sequence[int]) -> dict[int, int]:
    """Return the keys that were hot in a batch, each with the input to spread: the one with more rows.

    With 8,000 rows and 4 buckets, a key is hot from 8,000 * 1/8 / 4 = 250 rows on.  Where the other inputs have more
    than twice as many rows of the key, copying them costs more than spreading gains.
    """
    found: dict[int, tuple[int, int]] = {}
    for input in rule.inputs:
        own = counts.get(input, RowCounts(0, {}))
        least = max(rule.min_rows, own.rows * MIN_SHARE / buckets)
        for key, rows in own.keys.items():
            copies = sum(counts[other].keys.get(key, 0) for other in _others(input, inputs) if other in counts)
            if rows >= least and copies <= _MAX_COPIES * rows and rows > found.get(key, (0, 0))[0]:
                found[key] = rows, input
    return {key: input for key, (_, input) in found.items()}


def _next_phase(key: HotKey, hot: int | None, newest: Sequence[int], closed: Sequence[int]) -> HotKey | None:
    """Return a hot key after one more batch; None once it is like any other key."""
    key = replace(key, cold=0 if hot == key.spread else key.cold + 1)
    spread = key.spread
    is_cold = key.cold >= COLD_BATCHES
    match key.phase:
        case Phase.COPIED if is_cold:
            return None
        case Phase.COPIED if min(closed[other] for other in _others(spread, closed)) > key.until:
            return replace(key, phase=Phase.SPREAD, until=NEVER)
        case Phase.SPREAD if is_cold:
            return replace(key, phase=Phase.GATHERED, until=newest[spread])
        case Phase.GATHERED if closed[spread] > key.until:
            return None
        case Phase.GATHERED if not is_cold:
            return replace(key, phase=Phase.SPREAD, until=NEVER)
    return key


def _others(input: int, inputs: Sequence[int]) -> list[int]:
    """The numbers of all inputs but one; ``inputs`` has an item for each."""
    return [other for other in range(len(inputs)) if other != input]
