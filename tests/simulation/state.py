"""What Spark's state stores hold: a version of every bucket's state for each batch that changed it."""

from __future__ import annotations

from collections import defaultdict

from tests.simulation.actors import pause
from watersmeet.state.store import MemoryStore

#: An operator's name, and a bucket.
Place = tuple[str, int]


class AttemptStore(MemoryStore):
    """What one attempt at a task reads and writes; nothing of it counts before it is committed."""

    def put(self, name: str, value: bytes) -> None:
        pause()
        super().put(name, value)

    def delete(self, name: str) -> None:
        pause()
        super().delete(name)


class StateVersions:
    """All versions, by place and batch.  As in Spark, of two attempts at a batch the one that commits last stays."""

    def __init__(self) -> None:
        self._versions: dict[Place, dict[int, AttemptStore]] = defaultdict(dict)

    def open(self, place: Place, batch: int) -> AttemptStore:
        """A copy of the state before a batch."""
        versions = self._versions[place]
        before = max((each for each in versions if each < batch), default=None)
        return AttemptStore({} if before is None else versions[before])

    def commit(self, place: Place, batch: int, store: AttemptStore) -> None:
        """Keep what an attempt leaves as the state after a batch."""
        self._versions[place][batch] = store
