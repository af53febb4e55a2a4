"""Sessions over all rows at once, by what their words say. The kernel is tested against it.

It is slow on purpose and shares no code with the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]


def sessions_of(rows: Iterable[Row], key: Callable[[Row], Any], gap: int) -> list[tuple[Row, int, int]]:
    """Each row with the start and the end of its session; ``ts`` is its time.

    Rows of a key belong together as long as none comes more than ``gap`` after the one before it; NULL is a key.
    """
    by_key: dict[Any, list[Row]] = {}
    for row in rows:
        by_key.setdefault(key(row), []).append(row)
    found = []
    for of_key in by_key.values():
        sessions: list[list[Row]] = []
        for row in sorted(of_key, key=lambda row: int(row["ts"])):
            if sessions and row["ts"] - sessions[-1][-1]["ts"] <= gap:
                sessions[-1].append(row)
            else:
                sessions.append([row])
        for session in sessions:
            found += [(row, session[0]["ts"], session[-1]["ts"] + gap) for row in session]
    return found
