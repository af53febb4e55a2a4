"""The files of an embedded stream's log on a store, such as ``s3a://…`` or ``hdfs://…``.

    N-KEY.parquet         a segment
    _claims/N.json        who may write segment N, from which file (claims.py)
    _staging-KEY-…/       what Spark has written and nobody has committed yet
    _baselines/N.parquet  a baseline; its claims are in _baselines/_claims/

Segment N is claimed when all before it are there.  So a batch whose key is neither among the segments nor in the last
claim has not been committed.  Baselines are never deleted here: no lock could keep one for a query that begins.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from pyspark.sql import SparkSession

from watersmeet.connectors.embedded import baselines
from watersmeet.connectors.embedded.claims import Claims
from watersmeet.connectors.embedded.log_files import STAGING, key_of, segments_of
from watersmeet.errors import ConnectorError
from watersmeet.runtime.store_folder import StoreFolder

#: How often in a row another writer may be faster.
_TRIES = 1000


class StoredBaselines:
    """The folder of a log's baselines on a store."""

    def __init__(self, log: StoreFolder) -> None:
        self._storage = log.storage
        self.folder = f"{log}/_baselines"
        self.claims = Claims(self._storage, f"{self.folder}/_claims")

    def path(self, number: int) -> str:
        """Return the file of a baseline."""
        return f"{self.folder}/{number:012d}.parquet"

    def numbers(self) -> list[int]:
        """Return the numbers of the baselines."""
        found = [int(name[:-8]) for name in self._storage.names(self.folder) if name.endswith(".parquet")]
        for number in set(self.claims.numbers()) - set(found):  # their writers died
            self.claims.complete(number)
            found.append(number)
        return sorted(found)

    def newest(self) -> int | None:
        """Return the number of the newest baseline."""
        return max(self.numbers(), default=None)

    def is_due(self, segments: Iterable[int]) -> bool:
        """Return whether enough segments (by number) have come since the newest baseline to make another."""
        newest = self.newest()
        return sum(newest is None or number > newest for number in segments) >= baselines.WORTH_SEGMENTS


class StoredLog:
    """A folder of segments on a store, and the baselines in it."""

    def __init__(self, folder: StoreFolder) -> None:
        self._folder = folder
        self._storage = folder.storage
        self._claims = Claims(folder.storage, f"{folder}/_claims")
        self.baselines = StoredBaselines(folder)
        folder.storage.make_folder(folder.uri)

    def require_reached(self, spark: SparkSession) -> None:
        """Do nothing: Spark reaches the store from all machines, or says so."""

    def segments(self) -> dict[int, str]:
        """Return the names of the segments by number, after the last one has been completed that was claimed."""
        claimed = self._claims.numbers()  # first, so that what is claimed meanwhile is not taken for broken off
        found = segments_of(self._storage.names(self._folder.uri))
        if claimed and claimed[-1] not in found:
            self._claims.complete(claimed[-1])
            found = segments_of(self._storage.names(self._folder.uri))
        return found

    def staging(self, key: str) -> str:
        """Return a folder for Spark to write to, which no other attempt uses: a claim may name a file in it."""
        return f"{self._folder}/{STAGING}{key}-{uuid.uuid4().hex}"

    def commit(self, staging: str, key: str) -> None:
        """Make the one file that Spark has written the next segment, unless the key has been committed meanwhile."""
        staged = self._part(staging)
        for _ in range(_TRIES):
            segments = self.segments()
            if any(key_of(name) == key for name in segments.values()):
                break
            number = max(segments, default=-1) + 1
            if self._claims.claim(number, staged, f"{self._folder}/{number:012d}-{key}.parquet"):
                self._claims.complete(number)
                break
        else:
            raise ConnectorError(f"{self._folder}: other writers have been faster {_TRIES} times in a row")
        # what earlier attempts at this key left, too
        for name in self._storage.names(self._folder.uri):
            if name.startswith(f"{STAGING}{key}-"):
                self._storage.delete(f"{self._folder}/{name}")

    def hold_baseline(self, until: int) -> int | None:
        """Return the number of the newest baseline up to that number."""
        return max((number for number in self.baselines.numbers() if number <= until), default=None)

    def publish_baseline(self, staging: str, number: int, segment: str) -> None:
        """Make the one file that Spark has written the baseline that ends with a segment, unless there is one."""
        if number not in self.baselines.numbers():
            self.baselines.claims.claim(number, self._part(staging), self.baselines.path(number))
            self.baselines.claims.complete(number)
        self._storage.delete(staging)

    def _part(self, staging: str) -> str:
        (part,) = (name for name in self._storage.names(staging) if name.startswith("part-"))
        return f"{staging}/{part}"
