"""Copies of segments on the machine's disk, for the other workers of the machine.

Spark hands a bucket to whichever worker process is free.  One whose working set is behind could read what it lacks from
the state store, through the JVM; a file in Arrow's format, which the worker that wrote the segment has left, is mapped
into memory in no time.  A copy is a cache: where it is missing, the state store has the segment.

A segment's id holds a hash of its content, so a copy that a failed attempt has left is never taken for another.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pyarrow as pa


class LocalCopies:
    """The copies of one bucket's segments; ``name`` tells the bucket from others of the run's ``folder``."""

    def __init__(self, folder: str, name: str) -> None:
        self._run = Path(folder)
        self._folder = self._run / name

    def put(self, segment_id: str, rows: pa.Table) -> None:
        """Leave a copy; where that fails, there is none."""
        path = self._path(segment_id)
        written = path.with_suffix(".tmp")
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with pa.OSFile(str(written), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
                writer.write_table(rows)
            written.replace(path)
            os.utime(self._run)  # it is in use

    def get(self, segment_id: str) -> pa.Table | None:
        """The rows of a segment, which lie in the file; None where there is no copy."""
        try:
            return pa.ipc.open_file(pa.memory_map(str(self._path(segment_id)))).read_all()
        except (OSError, pa.ArrowInvalid):
            return None

    def remove(self, segment_id: str) -> None:
        """Take a copy away; who has mapped it keeps it."""
        with suppress(OSError):
            self._path(segment_id).unlink(missing_ok=True)

    def _path(self, segment_id: str) -> Path:
        return self._folder / f"{segment_id}.arrow"
