"""The obvious model of a windowed join whose state has limits: lists, loops and one step after the other.

Times are whole seconds and no two rows have the same, so no tie decides what is evicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.reference import Kind

#: What a row takes: 16 beside its values, event time and row id 8 each, the key 4; a mark or the note of a key's use.
ROW, TEXT, FLAG, MARK, USE = 16 + 8 + 8 + 4, 4, 1, 32, 28
PRIMARY = {"semi": "l", "anti": "l", "right_semi": "r", "right_anti": "r"}
BEGIN, END = -(10**12), 10**12


@dataclass
class Held:
    """A row of the state."""

    stream: str
    key: int | None
    text: str
    time: int
    matched: bool = False
    marked: bool = False  # it found its first partner after it was stored


@dataclass
class LimitedJoin:
    """A join of ``l`` and ``r`` within ``within`` seconds; without a window, rows leave when they are so old."""

    kind: Kind
    within: int
    is_changelog: bool
    policy: str
    max_rows_per_key: int | None
    max_bytes: int
    is_window: bool = True
    frontier: int = BEGIN
    newest: dict[str, int] = field(default_factory=lambda: {"l": BEGIN, "r": BEGIN})
    held: list[Held] = field(default_factory=list)
    used: dict[int | None, int] = field(default_factory=dict)
    steps: int = 0
    late: int = 0
    expired: int = 0
    evicted: Counter[str] = field(default_factory=Counter)
    results: Counter[Any] = field(default_factory=Counter)

    def take(self, rows: Mapping[str, Sequence[tuple[int | None, str, int]]]) -> None:
        """Take one step."""
        self.steps += 1
        arrived = [Held(stream, *row) for stream in ("l", "r") for row in rows.get(stream, ())]
        new = [row for row in arrived if row.time >= self.frontier]
        self.late += len(arrived) - len(new)
        for row in arrived:
            self.newest[row.stream] = max(self.newest[row.stream], row.time)
        self.frontier = max(self.frontier, min(self.newest.values()))
        self._match(new)
        for row in new:
            self.used[row.key] = self.steps
        primary = PRIMARY.get(self.kind)
        self.held += [row for row in new if not (row.stream == primary and row.matched)]
        self._close()
        self._limit()

    def end(self) -> None:
        """Take the end of input."""
        self.frontier = END
        self._close()

    def state_bytes(self) -> int:
        """What the rows of the state take, without those that are past."""
        uses = USE * len({row.key for row in self.held}) if self.policy == "lru" else 0
        return sum(map(self._size, self.held)) + uses

    # -- the join --------------------------------------------------------------------------------------------------

    def _match(self, new: list[Held]) -> None:
        before = [*self.held]
        for row in new:
            if row.stream == "l":
                others = [each for each in [*before, *new] if each.stream == "r"]
            else:
                others = [each for each in before if each.stream == "l"]
            for other in others:
                is_near = not self.is_window or abs(row.time - other.time) <= self.within
                if row.key is not None and row.key == other.key and is_near:
                    left, right = (row, other) if row.stream == "l" else (other, row)
                    if self.kind not in PRIMARY:
                        self._emit(1, left, right)
                    for each in (left, right):
                        if not each.matched:
                            self._first_match(each, is_new=any(each is one for one in new))
        for row in new:
            if not row.matched and self.is_changelog and self._pads(row.stream):
                self._emit_alone(1, row)

    def _first_match(self, row: Held, *, is_new: bool) -> None:
        row.matched = True
        row.marked = not is_new and self._tracks(row.stream)
        if self.kind in ("semi", "right_semi") and row.stream == PRIMARY[self.kind]:
            self._emit_alone(1, row)
        elif not is_new and self.is_changelog and self._pads(row.stream):
            self._emit_alone(-1, row)

    def _close(self) -> None:
        for row in [each for each in self.held if each.time + self.within < self.frontier]:
            has_all = self.kind in PRIMARY and row.stream == PRIMARY[self.kind] and row.matched
            self.expired += not self.is_window and self.frontier < END and not has_all
            self._leave(row)

    def _leave(self, row: Held) -> None:
        self.held = [each for each in self.held if each is not row]
        if not row.matched and not self.is_changelog and self._pads(row.stream):
            self._emit_alone(1, row)

    def _pads(self, stream: str) -> bool:
        kinds = {"l": ("left", "full", "anti"), "r": ("right", "full", "right_anti")}
        return self.kind in kinds[stream]

    def _tracks(self, stream: str) -> bool:
        return self._pads(stream) or (self.kind in ("semi", "right_semi") and stream == PRIMARY[self.kind])

    def _emit(self, weight: int, left: Held | None, right: Held | None) -> None:
        sides = [(None, None, None) if row is None else (row.key, row.text, row.time) for row in (left, right)]
        self.results[sides[0] + sides[1]] += weight

    def _emit_alone(self, weight: int, row: Held) -> None:
        if self.kind in PRIMARY:
            self.results[row.key, row.text, row.time] += weight
        else:
            self._emit(weight, *((row, None) if row.stream == "l" else (None, row)))

    # -- its limits ------------------------------------------------------------------------------------------------

    def _limit(self) -> None:
        if (most := self.max_rows_per_key) is not None:
            for stream, capped in {(row.stream, row.key) for row in self.held if row.key is not None}:
                alike = sorted((r for r in self.held if (r.stream, r.key) == (stream, capped)), key=lambda r: -r.time)
                for row in alike[most:]:
                    self._evict(row, "per_key")
        if self.policy in ("oldest", "pressure"):
            if self.state_bytes() <= self.max_bytes:
                return
            target = self.max_bytes if self.policy == "oldest" else int(self.max_bytes * 0.75)
            for row in sorted(self.held, key=lambda r: r.time):
                if self.state_bytes() <= target:
                    return
                self._evict(row, self.policy)
        elif self.policy == "lru":
            while self.held and self.state_bytes() > self.max_bytes:
                key = min({row.key for row in self.held}, key=lambda k: (self.used[k], self._oldest(k)))
                for row in [each for each in self.held if each.key == key]:
                    self._evict(row, "lru")

    def _oldest(self, key: int | None) -> int:
        return min(row.time for row in self.held if row.key == key)

    def _evict(self, row: Held, reason: str) -> None:
        self.evicted[f"{row.stream}.{reason}"] += 1
        self._leave(row)

    def _size(self, row: Held) -> int:
        has_text = self.kind not in PRIMARY or row.stream == PRIMARY[self.kind]
        text = TEXT + len(row.text) if has_text else 0
        return ROW + text + FLAG * self._tracks(row.stream) + MARK * row.marked
