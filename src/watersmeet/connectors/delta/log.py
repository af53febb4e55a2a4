"""The log of a Delta table: what each version did, and which files the table has at one.

Commits are read here, one JSON object a line, because a stream needs each version by itself. Snapshots come from the
package deltalake, which reads the log's checkpoints.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from pyarrow.fs import FileType

from watersmeet.connectors.delta.failures import first_line
from watersmeet.connectors.delta.files import store_options
from watersmeet.engine.deletion_vectors import described, with_path
from watersmeet.engine.delta import Stored
from watersmeet.errors import ConnectorError, OutageError, WatersmeetError
from watersmeet.filesystems import filesystem_of, is_unreachable, reason_of
from watersmeet.lookup.file_tables import require_delta
from watersmeet.settings.secrets import hide

if TYPE_CHECKING:
    from deltalake import DeltaTable

_LAST_CHECKPOINT = "_last_checkpoint"
_PHYSICAL = "delta.columnMapping.physicalName"
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_UNREADABLE = (
    "see that it can be read by other programs too; a version whose log was cleaned up cannot: start the query anew, "
    "without its checkpoint"
)


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """A file that the log names: its size, and when it was written, in milliseconds."""

    stored: Stored
    size: int
    modified: int = 0


@dataclass(frozen=True, slots=True)
class Metadata:
    """A table's identity, columns, and properties."""

    id: str
    schema: str
    properties: Mapping[str, str]

    @property
    def has_feed(self) -> bool:
        """Whether the table's writers keep a change data feed."""
        return self.properties.get("delta.enableChangeDataFeed", "").lower() == "true"

    @property
    def mapping(self) -> str:
        """How columns are mapped to those of files: ``none``, ``name`` or ``id``."""
        return self.properties.get("delta.columnMapping.mode", "none").lower()


@dataclass(frozen=True, slots=True)
class Commit:
    """What a version did: files with rows that came or went, and files of the feed, in the order of the log.

    ``time`` is its own, in milliseconds. ``features`` are those that a reader must know from there on (None: as
    before).
    """

    version: int
    time: int
    operation: str
    added: tuple[LoggedFile, ...] = ()
    removed: tuple[LoggedFile, ...] = ()
    feed: tuple[LoggedFile, ...] = ()
    metadata: Metadata | None = None
    features: frozenset[str] | None = None

    @property
    def what(self) -> str:
        """What it did, in words."""
        rows = "removed or changed rows" if self.removed else "added rows"
        return f"version {self.version} {rows} ({self.operation})"


@dataclass(frozen=True, slots=True)
class About:
    """What a table says of itself at a version."""

    version: int
    metadata: Metadata
    features: frozenset[str]


class DeltaLog:
    """The log of the table in a folder, which messages call ``shown``."""

    def __init__(self, root: str, shown: str) -> None:
        self.root, self.shown = root.rstrip("/"), shown

    def commit(self, version: int) -> Commit | None:
        """Return a version; None if the log does not have it."""
        with self._reading(f"version {version}"):
            text, modified = self._text(f"{version:020d}.json")
            return None if text is None else _commit(text, version, modified, self.root)

    def require_end(self, version: int) -> None:
        """Raise ``ConnectorError`` if a version that the log does not have is not simply one that is still to come."""
        with self._reading("the log"):
            pointer, _ = self._text(_LAST_CHECKPOINT)
            checkpoint = -1 if pointer is None else int(json.loads(pointer)["version"])
            has_before = checkpoint >= 0 or version == 0 or self._exists(version - 1)
            is_end = checkpoint < version and has_before
            if is_end or self._exists(version):  # it may have come meanwhile
                return
        if checkpoint >= version:
            raise gone(self.shown, version, f"the log begins later: it was cleaned up before version {checkpoint}")
        raise gone(self.shown, version, "nor the one before it: the table was deleted or made anew")

    def about(self, version: int | None = None) -> About:
        """Return what the table says at a version (None: the newest); raises ``ConnectorError`` if there is none."""
        table = self.open(version)
        with self._reading(f"version {table.version()}"):
            about, protocol = table.metadata(), table.protocol()
            metadata = Metadata(str(about.id), table.schema().to_json(), dict(about.configuration))
            features = {"minReaderVersion": protocol.min_reader_version, "readerFeatures": protocol.reader_features}
            return About(table.version(), metadata, _features(features))

    def files(self, version: int) -> tuple[LoggedFile, ...]:
        """Return the files of the table at a version, oldest first."""
        table = self.open(version)
        with self._reading(f"version {version}"):
            found = _files(table, self.root)
            return tuple(sorted(found, key=lambda each: (each.modified, each.stored.path)))

    def open(self, version: int | None = None) -> DeltaTable:
        """Return the package's view of the table."""
        require_delta()
        from deltalake import DeltaTable

        with self._reading("the newest version"):
            options = store_options(self.root)
            if not DeltaTable.is_deltatable(self.root, options):
                system, inner = filesystem_of(self.root)
                if system.get_file_info(inner).type is FileType.NotFound:
                    raise ConnectorError(
                        f"there is no folder {self.shown}", hint="create the table first, or correct the option path"
                    )
                raise ConnectorError(
                    f"{self.shown} is no Delta table",
                    hint="connector = 'files', format = 'parquet' reads Parquet files",
                )
            newest = DeltaTable(self.root, storage_options=options)
        if version is None or version == newest.version():
            return newest
        with self._reading(f"version {version}"):
            return DeltaTable(self.root, version=version, storage_options=options)

    def since(self, moment: int, newest: int) -> int:
        """Return the version after the last one, up to the newest, that was committed before a moment (milliseconds).

        Raises ``ConnectorError`` if the log no longer says.
        """
        for version in range(newest, -1, -1):
            found = self.commit(version)
            if found is None:
                raise gone(
                    self.shown,
                    version,
                    f"the log begins with version {version + 1}, and what was committed since the given time before it",
                )
            if found.time < moment:
                return version + 1
        return 0

    def _exists(self, version: int) -> bool:
        system, folder = filesystem_of(f"{self.root}/_delta_log")
        return system.get_file_info(f"{folder}/{version:020d}.json").type is not FileType.NotFound

    def _text(self, name: str) -> tuple[str | None, int]:
        """Return the text of a file of the log, and when it was written in milliseconds; None if it does not exist."""
        system, folder = filesystem_of(f"{self.root}/_delta_log")
        try:
            with system.open_input_stream(f"{folder}/{name}") as stream:
                text = stream.read().decode()
        except FileNotFoundError:
            return None, 0
        written = system.get_file_info(f"{folder}/{name}").mtime_ns
        return text, (written or 0) // 1_000_000

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        """Raise every failure as a ``ConnectorError`` of one sentence, one that may pass as an outage."""
        try:
            yield
        except WatersmeetError:
            raise
        except Exception as error:  # noqa: BLE001 - the package raises bare Exceptions too
            said = f"{what} of the Delta table {self.shown} cannot be read: {hide(first_line(error))}"
            if is_unreachable(str(error)):
                known = reason_of(str(error))
                raise OutageError(said, waits_for=f"{self.shown}: {known}" if known else "") from None
            raise ConnectorError(said, hint=_UNREADABLE) from None


def gone(shown: str, version: int, why: str) -> ConnectorError:
    """The error that the log does not have a version any more."""
    return ConnectorError(
        f"the log of the Delta table {shown} has no version {version}: {why}",
        hint="start the query anew, without its checkpoint, to go on with what the table has; keep "
        "delta.logRetentionDuration above the time that it may be behind",
    )


def _commit(text: str, version: int, modified: int, root: str) -> Commit:
    found: dict[str, list[Any]] = defaultdict(list)
    for line in text.splitlines():
        if line.strip():
            for name, action in json.loads(line).items():
                found[name].append(action)
    about = found["commitInfo"][0] if found["commitInfo"] else {}
    time = about.get("inCommitTimestamp", about.get("timestamp", modified))
    (metadata,) = found["metaData"][-1:] or [None]
    (protocol,) = found["protocol"][-1:] or [None]
    return Commit(
        version,
        int(time),
        str(about.get("operation", "an unnamed operation")),
        added=tuple(_logged(each, root) for each in found["add"] if each["dataChange"]),
        removed=tuple(_logged(each, root) for each in found["remove"] if each["dataChange"]),
        feed=tuple(_logged(each, root) for each in found["cdc"]),
        metadata=None if metadata is None else _metadata(metadata),
        features=None if protocol is None else _features(protocol),
    )


def _logged(action: Mapping[str, Any], root: str) -> LoggedFile:
    deletions = action.get("deletionVector")
    stored = Stored(
        _whole(unquote(action["path"]), root),
        action.get("partitionValues") or {},
        None if deletions is None else with_path(deletions, root),
    )
    return LoggedFile(stored, int(action.get("size") or 0), int(action.get("modificationTime") or 0))


def _whole(path: str, root: str) -> str:
    if _ABSOLUTE.match(path):
        return re.sub(r"^file:(//)?", "", path)
    return f"{root}/{path}"


def _metadata(action: Mapping[str, Any]) -> Metadata:
    return Metadata(str(action["id"]), action["schemaString"], action.get("configuration") or {})


def _features(protocol: Mapping[str, Any]) -> frozenset[str]:
    """Return what a reader must know: version 2 is column mapping, version 3 lists features by name."""
    if protocol["minReaderVersion"] == 2:
        return frozenset(["columnMapping"])
    return frozenset(protocol.get("readerFeatures") or ())


def physical_names(schema: str) -> dict[str, str]:
    """Return what the columns of a table are called in its files and in what its log says of these."""
    columns = json.loads(schema)["fields"]
    return {each["name"]: (each.get("metadata") or {}).get(_PHYSICAL, each["name"]) for each in columns}


def _files(table: DeltaTable, root: str) -> Iterator[LoggedFile]:
    actions = pa.table(table.get_add_actions(flatten=False))
    is_partitioned = "partition" in actions.schema.names
    names = [field.name for field in actions.schema.field("partition").type] if is_partitioned else []
    deletions, called = _deletions(table, root), physical_names(table.schema().to_json())
    for batch in actions.to_batches():
        partitions = {name: batch["partition"].field(name).cast(pa.string()).to_pylist() for name in names}
        listed = zip(batch["path"], batch["size_bytes"], batch["modification_time"].cast(pa.int64()), strict=True)
        for number, (logged, size, modified) in enumerate(listed):
            path = _whole(unquote(logged.as_py()), root)
            values = {called.get(name, name): partitions[name][number] for name in names}
            yield LoggedFile(Stored(path, values, deletions.get(path)), size.as_py(), modified.as_py())


def _deletions(table: DeltaTable, root: str) -> dict[str, dict[str, Any]]:
    """Return which rows of a table's files are deleted, by the files' whole paths."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    found = {}
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        for path, selected in zip(batch["filepath"], batch["selection_vector"], strict=True):
            whole = _whole(unquote(path.as_py()), root)
            found[whole] = described(np.asarray(selected.values))
    return found
