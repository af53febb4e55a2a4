"""Queries that have run for a while, and go on from what they have stored: with it as it was, or damaged."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.real_time.epoch_harness import EpochHarness, net
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.state.store import MemoryStore
from watersmeet.testing.harness import Harness, StepInput, load_script

_STREAMS = """
CREATE STREAM a (k INT, v STRING, ts BIGINT, WATERMARK FOR ts AS ts - 5) WITH (event_time_unit = 's');
CREATE STREAM b (k INT, v STRING, ts BIGINT, WATERMARK FOR ts AS ts - 5) WITH (event_time_unit = 's');
CREATE STREAM c (k INT, v STRING, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's')
  PRIMARY KEY (k) SETTINGS mode = 'changelog_kv';
"""
QUERIES = (
    "SELECT a.k, a.v, b.v AS w FROM a LEFT JOIN b ON a.k = b.k WITHIN INTERVAL '10' SECONDS",
    "SELECT a.k, a.v, c.v AS w FROM a JOIN c ON a.k = c.k",
    "SELECT a.k, count() AS n, max(b.v) AS w FROM a JOIN b ON a.k = b.k WITHIN INTERVAL '1' HOUR GROUP BY a.k",
    "SELECT a.k, b.v FROM a LEFT ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k",
)
_END = (Event(EventKind.END),)
Names = tuple[tuple[str, int], str]


def _step(number: int) -> dict[str, StepInput]:
    """Rows for each stream: they meet rows of steps before."""
    return {
        name: StepInput([(k, f"{name}{number}{'x' * (k % 40)}", 100 + 3 * number + k) for k in range(shift, 5)])
        for shift, name in enumerate("abc")
    }


def _feeds(harness: Harness) -> list[tuple[Mapping[str, StepInput], Sequence[Event]]]:
    """What comes after the first two steps."""
    read = [name for name in "abc" if harness.inputs_of(name)]
    return [({name: _step(2)[name] for name in read}, ()), ({}, _END)]


class StoredQuery(Harness):
    """A query with micro-batches, whose state is a value for each name in each bucket."""

    def __init__(self, sql: str) -> None:
        super().__init__(*load_script(f"{_STREAMS} {sql};"), buckets=2)
        read = [name for name in "abc" if self.inputs_of(name)]
        for number in range(2):
            self.step({name: _step(number)[name] for name in read})
        self._saved = {place: dict(store) for place, store in self._stores.items()}
        self._saved_counts = (self._rows_fed.copy(), dict(self._counters))
        self.expected = self.go_on({})

    @property
    def values(self) -> dict[Names, bytes]:
        """All that is stored, by bucket and name."""
        return {(place, name): value for place, store in self._saved.items() for name, value in store.items()}

    def go_on(self, changed: Mapping[Names, bytes | None]) -> list[list[str]]:
        """What the query still gives, if these values have changed (None: are gone)."""
        self._stores.clear()
        for place, kept in self._saved.items():
            self._stores[place] = MemoryStore(kept)
        for (place, name), value in changed.items():
            if value is None:
                self._stores[place].delete(name)
            else:
                self._stores[place].put(name, value)
        self._rows_fed, self._counters = self._saved_counts[0].copy(), dict(self._saved_counts[1])
        self.restart()
        return [net(self.step(*feed)) for feed in _feeds(self)]


class StoredEpochs(EpochHarness):
    """A query in real time, whose state is files of its epochs."""

    def __init__(self, sql: str, folder: Path) -> None:
        super().__init__(*load_script(f"{_STREAMS} {sql};"), folder / "kept", steps=1)
        read = [name for name in "abc" if self.inputs_of(name)]
        for number in range(2):
            self.step({name: _step(number)[name] for name in read})
        self.kept, self._copy = folder / "kept", folder / "copy"
        self._after = (self._epoch, *self._before)
        self.expected = self.go_on({})

    @property
    def files(self) -> list[Path]:
        """Those of the epochs that count, from the folder."""
        return sorted(path.relative_to(self.kept) for path in self.kept.rglob("*") if path.is_file())

    def go_on(self, changed: Mapping[Path, bytes | None]) -> list[list[str]]:
        """What the query still gives, if these files have changed (None: are gone)."""
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self.kept, self._copy)
        for name, content in changed.items():
            if content is None:
                (self._copy / name).unlink()
            else:
                (self._copy / name).write_bytes(content)
        self._folder = self._copy
        self._epoch, fed, counters = self._after
        self._rows_fed, self._counters = Counter(fed), dict(counters)
        self._before = (Counter(fed), dict(counters))
        self._open, self._taken = {}, []
        super().restart()
        return [net(self.step(*feed)) for feed in _feeds(self)]


@cache
def stored_query(number: int) -> StoredQuery:
    """One of the queries, with micro-batches."""
    return StoredQuery(QUERIES[number])


@cache
def stored_epochs(number: int, folder: Path) -> StoredEpochs:
    """One of the queries, in real time."""
    return StoredEpochs(QUERIES[number], folder / str(number))


class LocalFiles:
    """What a checkpoint needs of ``runtime.storage.Storage``, on local files without their checksums."""

    def read_text(self, path: str) -> str | None:
        """The text of a file."""
        from watersmeet.runtime.storage import DamagedFileError

        try:
            return Path(path).read_bytes().decode() if Path(path).exists() else None
        except UnicodeDecodeError:
            raise DamagedFileError(f"{path} is not text in UTF-8") from None

    def write_text(self, path: str, text: str) -> None:
        """Write a file."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)

    def names(self, path: str) -> list[str]:
        """The names in a folder."""
        return sorted(each.name for each in Path(path).iterdir()) if Path(path).is_dir() else []

    def make_folder(self, path: str) -> None:
        """Make a folder."""
        Path(path).mkdir(parents=True, exist_ok=True)

    def remove_temporary(self, path: str, **_: Any) -> None:
        """Do nothing: no writer was interrupted."""
