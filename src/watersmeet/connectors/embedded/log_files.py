"""What an embedded stream's log needs of the place where its files are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from pyspark.sql import SparkSession

#: What the names of folders begin with that Spark writes before a commit; Spark's readers skip them.
STAGING = "_staging-"
_SEGMENT = re.compile(r"\d{12}-.+\.parquet")


class BaselineFiles(Protocol):
    """The baselines of a log (baselines.py)."""

    @property
    def folder(self) -> object:
        """Where they are."""

    def path(self, number: int) -> object:
        """Return the file of a baseline."""

    def newest(self) -> int | None:
        """Return the number of the newest baseline."""

    def is_due(self, segments: Iterable[int]) -> bool:
        """Return whether enough segments (by number) have come since the newest baseline to make another."""


class LogFiles(Protocol):
    """The segments and baselines of one log; what is committed is there whole, or not at all."""

    @property
    def baselines(self) -> BaselineFiles:
        """The baselines."""

    def require_reached(self, spark: SparkSession) -> None:
        """Raise ``ConfigError`` if there are workers that do not reach the files."""

    def segments(self) -> dict[int, str]:
        """Return the names of the segments by number."""

    def staging(self, key: str) -> str:
        """Return a folder for Spark to write to."""

    def commit(self, staging: str, key: str) -> None:
        """Make the one file that Spark has written the next segment, with a name that ends with the key."""

    def hold_baseline(self, until: int) -> int | None:
        """Return the number of the newest baseline up to that number, and keep it from being deleted for a while."""

    def publish_baseline(self, staging: str, number: int, segment: str) -> None:
        """Make the one file that Spark has written the baseline that ends with a segment, unless there is one."""


def segments_of(names: Iterable[str]) -> dict[int, str]:
    """Return those names that are segments', by number."""
    return {int(name[:12]): name for name in names if is_segment(name)}


def is_segment(name: str) -> bool:
    """Return whether a name is a segment's."""
    return _SEGMENT.fullmatch(name) is not None


def key_of(segment: str) -> str:
    """Return the key with which a segment was written, by its name."""
    return segment[13:].removesuffix(".parquet")
