"""The files of an embedded stream's log in a local folder.

A commit is one rename under a lock, so readers see all of it or nothing.  Modification times rise strictly with the
numbers, because Spark reads files in that order.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, flock
from pathlib import Path

from pyspark.sql import SparkSession

from watersmeet.connectors.embedded.baselines import Baselines
from watersmeet.connectors.embedded.log_files import STAGING, segments_of
from watersmeet.runtime.shared_folders import require_shared

_ABANDONED_SECONDS = 24 * 3600


class LocalLog:
    """A folder of segments, and the baselines in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.baselines = Baselines(folder)
        folder.mkdir(parents=True, exist_ok=True)

    def require_reached(self, spark: SparkSession) -> None:
        """Raise ``ConfigError`` if there are workers that do not see the folder."""
        require_shared(
            spark,
            f"file:{self._folder.absolute()}",
            "the embedded stream in",
            "name a workspace that all machines share, at the same path on all, or a URI such as s3a://BUCKET/FOLDER",
        )

    def segments(self) -> dict[int, str]:
        """Return the names of the segments by number."""
        return segments_of(path.name for path in self._folder.iterdir())

    def staging(self, key: str) -> str:
        """Return a folder for Spark to write to; what dead writers left is deleted.

        That of a live writer is younger.
        """
        oldest = time.time() - _ABANDONED_SECONDS
        for staging in self._folder.glob(f"{STAGING}*"):
            with suppress(FileNotFoundError):  # its writer may have deleted it just now
                if staging.stat().st_mtime < oldest:
                    shutil.rmtree(staging, ignore_errors=True)
        return str(self._folder / f"{STAGING}{key}")

    def commit(self, staging: str, key: str) -> None:
        """Make the one file that Spark has written the next segment."""
        staged = _part(staging)
        with self._lock():
            segments = self.segments()
            number = max(segments, default=-1) + 1
            newest = (self._folder / segments[number - 1]).stat().st_mtime_ns if segments else 0
            changed = max(staged.stat().st_mtime_ns, newest + 2_000_000)
            os.utime(staged, ns=(changed, changed))
            staged.replace(self._folder / f"{number:012d}-{key}.parquet")
        shutil.rmtree(staging, ignore_errors=True)

    def hold_baseline(self, until: int) -> int | None:
        """Return the number of the newest baseline up to that number, and keep it from being deleted for a while."""
        with self._lock():
            return self.baselines.hold(until)

    def publish_baseline(self, staging: str, number: int, segment: str) -> None:
        """Make the one file that Spark has written the baseline that ends with a segment, unless there is one."""
        with self._lock():
            self.baselines.publish(_part(staging), number, self._folder / segment)
        shutil.rmtree(staging, ignore_errors=True)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with (self._folder / "_lock").open("w") as lock:
            flock(lock, LOCK_EX)
            yield


def _part(staging: str) -> Path:
    (part,) = Path(staging).glob("part-*.parquet")
    return part
