"""One partition of a stateful operator's state in a version: the newest snapshot, and the changelogs after it."""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterator

import pyarrow.fs

from watersmeet.state.spark_store.changelog import Changelog
from watersmeet.state.spark_store.damage import RESTORE, MissingFileError, damaged, reading, unreadable
from watersmeet.state.spark_store.rows import key_of, value_of
from watersmeet.state.spark_store.sorted_table import Found, SortedTable, open_table

_FILE = re.compile(r"(\d+)(_[0-9a-f-]+)?\.(zip|changelog)")
_METADATA, _METADATA_VERSION = "metadata", "v1"
_FAMILY = "log"
#: What reading an archive raises whose bytes have changed.
_NO_ARCHIVE = (
    zipfile.BadZipFile, zlib.error, EOFError, KeyError, TypeError, ValueError, AttributeError, OSError, RuntimeError,
)  # fmt: skip


class Partition:
    """The values of a partition's buckets, by bucket and name, in a version of the state.

    Raises ``CheckpointError`` if files are missing or damaged, or have a format that only Spark reads.
    """

    def __init__(self, filesystem: pyarrow.fs.FileSystem, folder: str, version: int) -> None:
        self.folder, self.version = folder, version
        self._filesystem = filesystem
        snapshots, changes = self._listed()
        self.snapshot = max((each for each in snapshots if each <= version), default=None)
        if self.snapshot is None:
            raise MissingFileError(f"{folder} has no snapshot up to version {version}", hint=RESTORE)
        later = range(self.snapshot + 1, version + 1)
        if missing := [each for each in later if each not in changes]:
            raise MissingFileError(f"{folder}/{missing[0]}.changelog is missing", hint=RESTORE)
        self._changelogs = [Changelog(filesystem, f"{folder}/{each}.changelog") for each in reversed(later)]
        families, tables = self._metadata()
        if _FAMILY not in families:
            raise damaged(self._zip, "it has no state of a query of Watersmeet")
        self._family = families[_FAMILY]
        self._tables = [open_table(filesystem, each) for each in tables]

    def get(self, bucket: int, name: str) -> bytes | None:
        """Return a value; None if there is none."""
        key = key_of(self._family, bucket, name)
        for changelog in self._changelogs:
            if key in changelog:
                return self._value(changelog.get(key), changelog.path)
        found = [(each, table) for table in self._tables if (each := table.get(key)) is not None]
        if not found:
            return None
        newest: tuple[Found, SortedTable] = max(found, key=lambda each: each[0].sequence)
        return self._value(newest[0].value, newest[1].path)

    def checks(self) -> Iterator[tuple[str, SortedTable | Changelog]]:
        """Yield all files of this version that can be checked whole, with their paths."""
        yield from ((table.path, table) for table in self._tables)
        yield from ((changelog.path, changelog) for changelog in self._changelogs)

    @property
    def files(self) -> list[str]:
        """The paths of all files that this version consists of."""
        return [self._zip, *(path for path, _ in self.checks())]

    @property
    def _zip(self) -> str:
        return f"{self.folder}/{self.snapshot}.zip"

    def _value(self, stored: bytes | None, path: str) -> bytes | None:
        if stored is None:
            return None
        if (found := value_of(stored)) is None:
            raise damaged(path, "a value is not a row of Spark")
        return found

    def _listed(self) -> tuple[set[int], set[int]]:
        """The versions of snapshots and changelogs."""
        found: dict[str, set[int]] = {"zip": set(), "changelog": set()}
        with reading(self.folder):
            infos = self._filesystem.get_file_info(pyarrow.fs.FileSelector(self.folder))
        for info in infos:
            if (name := _FILE.fullmatch(info.base_name)) is not None:
                if name[2]:
                    raise unreadable(info.path, "its name has an id (stateStore.checkpointFormatVersion = 2)")
                found[name[3]].add(int(name[1]))
        return found["zip"], found["changelog"]

    def _metadata(self) -> tuple[dict[str, int], list[str]]:
        """The column families of a snapshot, and its tables."""
        path = self._zip
        with reading(path), self._filesystem.open_input_stream(path) as file:
            content = file.read()
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                if (bad := archive.testzip()) is not None:
                    raise damaged(path, f"{bad} in it is not what was written")
                version, _, text = archive.read(_METADATA).decode().partition("\n")
            if version != _METADATA_VERSION:
                raise unreadable(path, f"its format is {version}, known is {_METADATA_VERSION}")
            fields = json.loads(text)
            families = {str(name): int(number) for name, number in (fields.get("columnFamilyMapping") or {}).items()}
            names = [str(each["dfsSstFileName"]) for each in fields["sstFiles"]]
        except _NO_ARCHIVE:
            raise damaged(path, "it is not a snapshot of Spark") from None
        return families, [f"{self.folder}/SSTs/{name}" for name in names]
