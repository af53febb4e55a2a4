"""The file systems on which tasks write files beside a checkpoint."""

from __future__ import annotations

import re

import pyarrow.fs


def filesystem_of(path: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """The file system of a path or URI, and the path on it."""
    if "://" in path:
        # Hadoop has other schemes for S3 than Arrow
        filesystem, inner = pyarrow.fs.FileSystem.from_uri(re.sub(r"^s3[an]://", "s3://", path))
        return filesystem, str(inner)
    return pyarrow.fs.LocalFileSystem(), path.removeprefix("file:")
