"""Files that tasks themselves write beside a checkpoint, wherever that is."""

from __future__ import annotations

import re

import pyarrow.fs


def filesystem_of(path: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """The file system of a path or URI, and the path there."""
    if "://" in path:
        # Hadoop's names of S3 are not Arrow's
        filesystem, inner = pyarrow.fs.FileSystem.from_uri(re.sub(r"^s3[an]://", "s3://", path))
        return filesystem, str(inner)
    return pyarrow.fs.LocalFileSystem(), path.removeprefix("file:")
