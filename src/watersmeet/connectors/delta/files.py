"""Files of a Delta table that are written in tasks, and the commit that adds them to the table.

A task writes them with the package deltalake, as the driver would: into a **shadow** of the table, which is a table on
the task's own disk with the same columns, partitions, properties and constraints, but without files. It then copies the
files to the table's folder. Their descriptions, from the shadow's log, are all that the driver needs for the commit.
Files that no commit names are not in the table; VACUUM removes them.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from watersmeet.connectors.delta.failures import reporting
from watersmeet.filesystems import delta_options
from watersmeet.lookup.file_tables import require_delta

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

_LOG = "_delta_log"
_FIRST, _SECOND = "00000000000000000000.json", "00000000000000000001.json"
_COPIED_BYTES = 8 * 1024 * 1024
#: Batches are tried again.
_SHORT_RETRIES = {"max_retries": "3", "retry_timeout": "20s"}


@dataclass(frozen=True, slots=True)
class DeltaFiles:
    """Writes files for a Delta table.

    ``path`` is its folder, ``log`` the first commit of a shadow of it, and ``what`` the beginning of an error's text.
    """

    path: str
    log: str
    what: str

    def write(self, rows: pa.RecordBatchReader) -> str:
        """Write the rows, and return the files' descriptions; raises as the commit of a batch does."""
        require_delta()
        from deltalake import write_deltalake

        with reporting(self.what), _shadow(self.log) as folder:
            write_deltalake(folder, rows, mode="append")
            commit = (folder / _LOG / _SECOND).read_text(encoding="utf-8")
            added = [json.loads(line).get("add") for line in commit.split("\n") if line]
            files = [each for each in added if each is not None]
            self._copy(folder, [unquote(each["path"]) for each in files])
        return json.dumps(files)

    def _copy(self, folder: Path, paths: Iterable[str]) -> None:
        from deltalake.fs import DeltaStorageHandler

        # what its open_output_stream returns passes on Arrow's buffers, which the store's stream does not take
        store: Any = DeltaStorageHandler(self.path, store_options(self.path))._handler
        for path in paths:
            with (folder / path).open("rb") as file:
                out = store.open_output_stream(path, None)
                shutil.copyfileobj(file, out, _COPIED_BYTES)
                out.close()


def files_for(table: DeltaTable, path: str, what: str) -> DeltaFiles:
    """Return what writes files for the table at a path."""
    return DeltaFiles(path if "://" in path else str(Path(path).absolute()), _first_commit(table), what)


def store_options(path: str) -> dict[str, str]:
    """Return how a table's store is reached, and that requests to it are repeated for a short time only."""
    return {} if is_local(path) else {**_SHORT_RETRIES, **delta_options(path)}


def is_local(path: str) -> bool:
    """Return whether a table is on a disk."""
    return "://" not in path or path.startswith("file:")


def commit_files(table: DeltaTable, notes: Iterable[str], properties: CommitProperties) -> None:
    """Add the files that tasks described to the table, in one commit."""
    from deltalake.transaction import AddAction

    files = [
        AddAction(
            path=unquote(each["path"]),
            size=each["size"],
            partition_values=each["partitionValues"],
            modification_time=each["modificationTime"],
            data_change=True,
            stats=each.get("stats"),
        )
        for note in notes
        for each in json.loads(note)
    ]
    partitions = table.metadata().partition_columns
    table.create_write_transaction(
        list(files), "append", table.schema(), partition_by=partitions, commit_properties=properties
    )


def _first_commit(table: DeltaTable) -> str:
    """Return the text of a commit that makes a table like this one."""
    versions, about = table.protocol(), table.metadata()
    protocol: dict[str, Any] = {
        "minReaderVersion": versions.min_reader_version,
        "minWriterVersion": versions.min_writer_version,
    }
    if versions.reader_features is not None:
        protocol["readerFeatures"] = versions.reader_features
    if versions.writer_features is not None:
        protocol["writerFeatures"] = versions.writer_features
    metadata = {
        "id": str(about.id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": table.schema().to_json(),
        "partitionColumns": about.partition_columns,
        "configuration": about.configuration,
        "createdTime": about.created_time,
    }
    return f"{json.dumps({'protocol': protocol})}\n{json.dumps({'metaData': metadata})}\n"


@contextmanager
def _shadow(log: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="watersmeet-delta-") as name:
        folder = Path(name)
        (folder / _LOG).mkdir()
        (folder / _LOG / _FIRST).write_text(log, encoding="utf-8")
        yield folder
