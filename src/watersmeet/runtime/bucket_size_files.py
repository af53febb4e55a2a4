"""The sizes of an operator's buckets after each batch, or epoch, as names of empty files beside the checkpoint.

    FOLDER/QUERY/OPERATOR/BATCH/BUCKET-BYTES

QUERY is Spark's id of the query, which restarts keep.  A batch that runs again finds what the batch before it reported.
Two attempts at a batch may report different sizes of a bucket, if they stored rows in other places: the largest counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.fs

from watersmeet.engine.specs import OperatorSpec
from watersmeet.errors import CheckpointError
from watersmeet.filesystems import filesystem_of
from watersmeet.runtime.exchange import batch_id, query_id

_FILE_NAME = re.compile(r"(-?\d+)-(\d+)")


@dataclass(frozen=True, slots=True)
class BucketSizeFiles:
    """The log of one operator's sizes, read and written by the running task."""

    folder: str
    operator: str

    def read(self) -> Mapping[int, int]:
        """What all buckets reported for the batch before this one."""
        sizes: dict[int, int] = {}
        with self._opened() as (filesystem, path):
            for info in _entries(filesystem, f"{path}/{batch_id() - 1}"):
                if (found := _FILE_NAME.fullmatch(info.base_name)) is not None:
                    bucket, size = map(int, found.groups())
                    sizes[bucket] = max(size, sizes.get(bucket, 0))
        return sizes

    def report(self, bucket: int, size: int) -> None:
        """Report what a bucket wants to hold after this batch, and forget what no batch will ask for."""
        current = batch_id()
        with self._opened() as (filesystem, path):
            filesystem.create_dir(f"{path}/{current}", recursive=True)
            filesystem.open_output_stream(f"{path}/{current}/{bucket}-{size}").close()
            for info in _entries(filesystem, path):
                if info.base_name.isdigit() and int(info.base_name) < current - 1:
                    _remove(filesystem, info.path)

    @contextmanager
    def _opened(self) -> Iterator[tuple[pyarrow.fs.FileSystem, str]]:
        folder = f"{self.folder}/{query_id()}/{self.operator}"
        try:
            yield filesystem_of(folder)
        except (OSError, pa.ArrowException) as error:
            raise CheckpointError(
                f"the sizes of buckets in {folder} cannot be read or written by a worker: {str(error).splitlines()[0]}",
                hint="let all workers write there, and resume",
            ) from None


def size_files(specs: Iterable[OperatorSpec], folder: str | None) -> dict[str, BucketSizeFiles]:
    """Return the logs of the operators that have a limit and several buckets, by name; none without a folder."""
    if folder is None:
        return {}
    limited = (spec for spec in specs if spec.max_state_bytes is not None and len(spec.buckets) > 1)
    return {spec.name: BucketSizeFiles(folder, f"{spec.name}-{spec.fingerprint}") for spec in limited}


def _entries(filesystem: pyarrow.fs.FileSystem, path: str) -> list[pyarrow.fs.FileInfo]:
    found: list[pyarrow.fs.FileInfo] = filesystem.get_file_info(pyarrow.fs.FileSelector(path, allow_not_found=True))
    return found


def _remove(filesystem: pyarrow.fs.FileSystem, path: str) -> None:
    """Remove a folder; what other buckets are removing just now may stay until the next batch."""
    with suppress(OSError):
        filesystem.delete_dir(path)
