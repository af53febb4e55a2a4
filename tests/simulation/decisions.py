"""All that a simulation leaves to chance, drawn from one seed: the same seed makes the same decisions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Decisions:
    """Draws decisions, and notes those that a reader of a failure wants to know in ``story``."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.story: list[str] = []

    def note(self, what: str) -> None:
        """Add a line to the story."""
        self.story.append(what)

    def happens(self, chance: float) -> bool:
        """Whether something happens that has this chance."""
        return self._random.random() < chance

    def one_of(self, choices: Sequence[T]) -> T:
        """One of the choices, all of the same chance."""
        return self._random.choice(choices)

    def number(self, least: int, most: int) -> int:
        """A number between two, inclusive."""
        return self._random.randint(least, most)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in another order."""
        return self._random.sample(items, len(items))

    def cut(self, length: int, most: int) -> list[tuple[int, int]]:
        """Between one and ``most`` ranges (start, stop), perhaps empty ones, that together are 0 to ``length``."""
        inner = sorted(self._random.randint(0, length) for _ in range(self._random.randint(1, most) - 1))
        return list(zip([0, *inner], [*inner, length], strict=True))
