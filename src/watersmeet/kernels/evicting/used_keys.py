"""When each key was last used: a relation with a row for each key and batch that brought rows of it.

``$t`` is the first row id of the batch, which grows from batch to batch.  The relation is compacted when keys are
evicted, and when it has many more entries than there are rows; it counts as state, like all others.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from watersmeet.columns import TIME
from watersmeet.kernels.api import Side, StateView, quote
from watersmeet.kernels.match import WindowMatch

USED = "used"


def key_names(match: WindowMatch) -> list[str]:
    """Return the names of key columns where both sides' keys are in one relation."""
    return [f"k{number}" for number in range(len(match.keys))]


def keys_of(match: WindowMatch, side: Side) -> list[str]:
    """Return SQL for the key columns of a side under these names."""
    return [f"{quote(key.of(side))} AS {name}" for key, name in zip(match.keys, key_names(match), strict=True)]


def same_key(match: WindowMatch, one: str, other: str) -> str:
    """Return the condition that rows of two relations with these names have equal keys; NULL equals NULL."""
    return " AND ".join(f"{one}.{name} IS NOT DISTINCT FROM {other}.{name}" for name in key_names(match))


def newly_used(match: WindowMatch, state: StateView, inputs: Mapping[int, pa.Table]) -> pa.Table:
    """Return the keys of a step's rows, used by its batch."""
    selects = [f"SELECT {', '.join(keys_of(match, side))} FROM {state.register(inputs[side.index])}" for side in Side]
    now = f"CAST({state.batch.first_rid} AS BIGINT) AS {quote(TIME)}"
    return state.query(f"SELECT DISTINCT *, {now} FROM ({' UNION ALL '.join(selects)})")


def last_used(match: WindowMatch, state: StateView, new: pa.Table) -> str:
    """Return SQL for all keys, each with its greatest ``$t``."""
    names = ", ".join(key_names(match))
    stored = state.scan(USED)
    rows = state.register(new) if stored is None else f"(SELECT * FROM {stored} UNION ALL FROM {state.register(new)})"
    return f"SELECT {names}, max({quote(TIME)}) AS {quote(TIME)} FROM {rows} GROUP BY {names}"
