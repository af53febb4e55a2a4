"""Rows and indexes in files of this process, mapped into its memory: the system reads pages when they are used.

Pages that were read count as memory of the process until they are given back.  They can always be read again, so giving
them back never loses anything; whoever has used a file does it.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.errors import LimitError

_ALIGNMENT = 64
#: The system reads other pages with each: Linux 32 by default.  Where it reads more, fewer scattered pages would do.
_READ_AHEAD = 32


class MappedFile:
    """A file in the folder for temporary files, without a name: it vanishes with the process, however that ends."""

    def __init__(self, file: Any) -> None:
        file.flush()
        self._mapped = mmap.mmap(file.fileno(), file.tell(), prot=mmap.PROT_READ)
        self.buffer = pa.py_buffer(self._mapped)

    def expect(self, pages: int | None = None) -> None:
        """Announce a read of so many scattered pages (None: of all, in order).

        If they are few, the system is told not to read ahead.
        """
        if hasattr(mmap, "MADV_RANDOM"):
            few = pages is not None and pages * _READ_AHEAD * mmap.PAGESIZE < len(self._mapped)
            self._mapped.madvise(mmap.MADV_RANDOM if few else mmap.MADV_NORMAL)

    def release(self) -> None:
        """Give back the pages that have been read."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)


def mapped_table(rows: pa.Table) -> tuple[MappedFile, pa.Table]:
    """Write rows to a file; return it and the same rows, in one chunk, whose buffers lie in it.

    Raises ``LimitError`` if the disk is full.
    """
    return mapped_batches(rows.combine_chunks().to_batches(), rows.schema)


def mapped_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> tuple[MappedFile, pa.Table]:
    """Write batches to a file, one after the other; return it and their rows, a chunk for each.

    Raises as ``mapped_table`` does.
    """
    with _new_file() as file:
        sink = pa.PythonFile(file, mode="w")
        with pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        mapped = MappedFile(file)
    return mapped, pa.ipc.open_file(mapped.buffer).read_all()


def mapped_arrays(arrays: Sequence[np.ndarray[Any, Any]]) -> tuple[MappedFile, list[np.ndarray[Any, Any]]]:
    """Write arrays to a file; return it and the same arrays, which lie in it.  Raises as ``mapped_table`` does."""
    with _new_file() as file:
        offsets = []
        for array in arrays:
            file.write(bytes(-file.tell() % _ALIGNMENT))
            offsets.append(file.tell())
            file.write(array.tobytes())
        file.write(bytes(1))  # a file of no bytes cannot be mapped
        mapped = MappedFile(file)
    found = [
        np.frombuffer(mapped.buffer, array.dtype, len(array), offset)
        for array, offset in zip(arrays, offsets, strict=True)
    ]
    return mapped, found


@contextmanager
def disk_errors() -> Iterator[None]:
    """Turn an ``OSError`` of a temporary file into a ``LimitError``."""
    try:
        yield
    except OSError as error:
        raise LimitError(
            f"rows that do not fit in memory cannot be written to {tempfile.gettempdir()}: {error.strerror or error}",
            hint="free space on that disk (or allow more open files), set TMPDIR to another, or raise worker_memory; "
            "then resume: nothing was lost",
        ) from None


@contextmanager
def _new_file() -> Iterator[Any]:
    with disk_errors(), tempfile.TemporaryFile(prefix="watersmeet-") as file:
        yield file
