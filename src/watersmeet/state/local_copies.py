"""Local copies: segments on the machine's disk, for the other workers of the machine.

Spark hands a bucket to whichever worker process is free.  A worker that lacks a segment maps the file that the writing
worker left into memory, instead of reading the segment from the state store through the JVM.  Copies are a cache: the
state store has every segment.

A segment's id contains a hash of its content, so a copy that a failed attempt left is never mistaken for another.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pyarrow as pa


class LocalCopies:
    """The copies of one bucket's segments, in the subfolder ``name`` of the run's ``folder``."""

    def __init__(self, folder: str, name: str) -> None:
        self._run = Path(folder)
        self._folder = self._run / name

    def put(self, segment_id: str, rows: pa.Table) -> None:
        """Write a copy; if writing fails, there is none."""
        path = self._path(segment_id)
        written = path.with_suffix(".tmp")
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with pa.OSFile(str(written), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
                writer.write_table(rows)
            written.replace(path)
            os.utime(self._run)  # marks the run's folder as in use

    def get(self, segment_id: str) -> pa.Table | None:
        """Return the rows of a segment, mapped from the file; None if there is no copy."""
        try:
            return pa.ipc.open_file(pa.memory_map(str(self._path(segment_id)))).read_all()
        except (OSError, pa.ArrowInvalid):
            return None

    def remove(self, segment_id: str) -> None:
        """Delete a copy; processes that have mapped it keep their rows."""
        with suppress(OSError):
            self._path(segment_id).unlink(missing_ok=True)

    def _path(self, segment_id: str) -> Path:
        return self._folder / f"{segment_id}.arrow"
