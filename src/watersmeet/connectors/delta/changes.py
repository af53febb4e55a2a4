"""A Delta table as a sequence of files, and places in it: a snapshot's files, then those of each later version.

A place is (version, number of files of it that were read). Spark keeps it with each batch, with where the query began,
so that the first batch is read again as it was, and with the time of the last version, so that times never fall.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from watersmeet.connectors.delta.log import Commit, DeltaLog, LoggedFile
from watersmeet.connectors.delta.schema import Declared
from watersmeet.engine.delta import FileKind, ListedFile, Stored
from watersmeet.errors import ConnectorError

_MICROS = 1000
#: So many versions are remembered between the planning of a batch and that of its tasks.
_RECENT = 256


@dataclass(frozen=True, slots=True)
class Begin:
    """Where a query begins: with all files of the table at a version, or with what that version did."""

    version: int
    snapshot: bool


@dataclass(frozen=True, slots=True)
class Place:
    """How far a query has read.

    ``table`` is the table's identity, ``stream`` what reads it.  Of ``version``, or of the snapshot of it, ``file``
    files were read.  The version before was committed at ``time`` (milliseconds, 0: none was read).  ``skipped``
    versions were left out so far: the query counts them by this (runtime/skipped_versions.py).
    """

    table: str
    stream: str
    begin: Begin
    version: int
    snapshot: bool
    file: int = 0
    time: int = 0
    skipped: int = 0

    @property
    def is_begin(self) -> bool:
        """Whether nothing was read yet."""
        return self.snapshot == self.begin.snapshot and self.version == self.begin.version and not self.file

    def encoded(self) -> dict[str, Any]:
        """The place as Spark keeps it."""
        return asdict(self)

    @staticmethod
    def decoded(found: Mapping[str, Any]) -> Place:
        """What ``encoded`` has made."""
        return Place(**{**found, "begin": Begin(**found["begin"])})

    @staticmethod
    def first(table: str, stream: str, begin: Begin) -> Place:
        """The place where nothing was read."""
        return Place(table, stream, begin, begin.version, begin.snapshot)


@dataclass(frozen=True, slots=True)
class _Unit:
    """The files of a version, or of a snapshot; a ``whole`` one is read in one batch, a ``skipped`` one is counted."""

    files: tuple[ListedFile, ...]
    sizes: tuple[int, ...]
    time: int
    whole: bool = False
    skipped: bool = False


class Changes:
    """The files of a table from a place on, for a stream.

    ``skips`` leaves versions out that remove or change rows, which an append-only stream cannot tell.  ``pairs``: files
    that retract rows come with those that insert rows.
    """

    def __init__(self, log: DeltaLog, declared: Declared, *, skips: bool = False, pairs: bool = False) -> None:
        self._log, self._declared, self._skips, self._pairs = log, declared, skips, pairs
        self._snapshots: dict[int, tuple[LoggedFile, ...]] = {}
        self._commits: dict[int, Commit] = {}

    def latest(self, start: Place, limit: int | None, last: int | None = None) -> Place:
        """The place after at most ``limit`` files, and no version after ``last``.

        Raises ``ConnectorError`` for a version that the stream cannot tell, and for a log that has lost one, once all
        before it was read.
        """
        place, left = start, limit
        while left is None or left > 0:
            if last is not None and place.version > last:
                break
            try:
                unit = self._unit(place)
            except ConnectorError:
                if place == start:
                    raise
                break
            if unit is None:
                self._log.require_end(place.version)
                break
            there = len(unit.files) - place.file
            taken = there if left is None or unit.whole else min(there, left)
            left = None if left is None else left - taken
            place = _after(place, unit) if taken == there else replace(place, file=place.file + taken)
        if place.version > start.version:  # versions of a table that was made anew have the same numbers
            require_same(start.table, self._log.about().metadata.id, self._log.shown)
        return place

    def files(self, start: Place, end: Place) -> Iterator[tuple[ListedFile, int]]:
        """The files between two places, with their sizes."""
        place = Place.first(end.table, end.stream, end.begin) if start.is_begin else start
        while (place.version, not place.snapshot, place.file) < (end.version, not end.snapshot, end.file):
            unit = self._unit(place)
            if unit is None:
                self._log.require_end(place.version)
                raise ConnectorError(f"the Delta table {self._log.shown} has no version {place.version} any more")
            is_last = (place.version, place.snapshot) == (end.version, end.snapshot)
            upto = end.file if is_last else len(unit.files)
            yield from zip(unit.files[place.file : upto], unit.sizes[place.file : upto], strict=True)
            place = replace(place, file=upto) if is_last else _after(place, unit)

    def _unit(self, place: Place) -> _Unit | None:
        if place.snapshot:
            return self._of_snapshot(place.version)
        commit = self._commit(place.version, place.table)
        return None if commit is None else self._of_commit(commit, place)

    def _of_snapshot(self, version: int) -> _Unit:
        if version not in self._snapshots:
            self._snapshots = {version: self._log.files(version)}
        found, commit = self._snapshots[version], self._log.commit(version)
        time = max((each.modified for each in found), default=0) if commit is None else commit.time
        files = tuple(
            ListedFile(each.stored, FileKind.ADDED, version, number, min(each.modified, time) * _MICROS)
            for number, each in enumerate(found)
        )
        return _Unit(files, tuple(each.size for each in found), time)

    def _of_commit(self, commit: Commit, place: Place) -> _Unit:
        time = max(commit.time, place.time + 1)
        if commit.removed and not self._declared.changes:
            if not self._skips:
                raise self._changed(commit)
            return _Unit((), (), time, skipped=True)
        given: list[tuple[FileKind, LoggedFile]] = []
        if self._declared.changes and commit.feed:
            given += [(FileKind.FEED, each) for each in commit.feed]
        else:
            given += [(FileKind.REMOVED, each) for each in commit.removed]
            given += [(FileKind.ADDED, each) for each in commit.added]
        inserts: tuple[tuple[Stored, FileKind], ...] = ()
        if self._pairs:
            inserts = tuple((each.stored, kind) for kind, each in given if kind is not FileKind.REMOVED)
        files = tuple(
            ListedFile(
                each.stored,
                kind,
                commit.version,
                number,
                time * _MICROS,
                () if kind is FileKind.ADDED else inserts,
            )
            for number, (kind, each) in enumerate(given)
        )
        whole = any(each.kind is not FileKind.ADDED for each in files)
        return _Unit(files, tuple(each.size for _, each in given), time, whole=whole)

    def _changed(self, commit: Commit) -> ConnectorError:
        return ConnectorError(
            f"{self._declared.stream} only appends, but {commit.what} in the Delta table {self._log.shown}",
            hint="read changes: PRIMARY KEY (…) SETTINGS mode = 'changelog_kv', with the table's change data feed; or "
            "leave such versions out, rows that they add included: WITH (skip_change_commits = 'true')",
        )

    def _commit(self, version: int, table: str) -> Commit | None:
        """Return a version, after a check of what it says of the table; None if the log does not have it."""
        if version in self._commits:
            return self._commits[version]
        commit = self._log.commit(version)
        if commit is None:
            return None
        if commit.metadata is not None:
            require_same(table, commit.metadata.id, self._log.shown)
            self._declared.check(commit.metadata, version)
        if commit.features is not None:
            self._declared.check_features(commit.features, version)
        if len(self._commits) >= _RECENT:
            self._commits.clear()
        self._commits[version] = commit
        return commit


def require_same(table: str, found: str, shown: str) -> None:
    """Raise ``ConnectorError`` if a table is another one than that which was read."""
    if table != found:
        raise ConnectorError(
            f"the Delta table {shown} is not the one that the query has read: it was deleted, or replaced, and made "
            "anew",
            hint="start the query anew, without its checkpoint, to go on with what the table has",
        )


def _after(place: Place, unit: _Unit) -> Place:
    """The place after all files of a version."""
    skipped = place.skipped + unit.skipped
    return replace(place, version=place.version + 1, snapshot=False, file=0, time=unit.time, skipped=skipped)
