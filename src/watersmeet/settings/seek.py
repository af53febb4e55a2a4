"""Where a query begins to read its streams when it first starts (``SETTINGS seek_to``), by time of arrival."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EARLIEST, LATEST = "earliest", "latest"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Seek(BaseModel):
    """Where reading begins; restarts of a query keep it.

    ``to`` is what the query asks for, ``since`` the moment in microseconds since 1970 (None: from the beginning).
    """

    model_config = ConfigDict(frozen=True)

    to: Literal["earliest", "latest", "time"]
    since: int | None = None


class Starts:
    """Where the partitions of streams began, as a query's checkpoint keeps it.

    A new checkpoint keeps what is found when the streams are first opened.  ``has_read``: a batch has been committed
    since, and with it what the streams begin with.
    """

    def __init__(self, kept: Mapping[str, Mapping[int, int]] | None, *, has_read: bool = False) -> None:
        self.has_read = has_read
        self.found = {stream: dict(positions) for stream, positions in (kept or {}).items()}
        self._is_new = kept is None

    def of(self, stream: str, find: Callable[[], dict[int, int]]) -> dict[int, int] | None:
        """The positions of a stream; None if the checkpoint was made without them."""
        if self._is_new and stream not in self.found:
            self.found[stream] = find()
        return self.found.get(stream)


def seek_text(value: object) -> str:
    """Check the setting: ``earliest``, ``latest`` or a time; ``ValueError`` for anything else."""
    if isinstance(value, str):
        if value.strip().lower() in (EARLIEST, LATEST):
            return value.strip().lower()
        try:
            datetime.fromisoformat(value.strip())
        except ValueError:
            pass
        else:
            return value.strip()
    raise ValueError(f"write '{EARLIEST}', '{LATEST}' or a time such as '2026-01-01 00:00:00+00:00'")


def resolve(spark: SparkSession, text: str | None) -> Seek | None:
    """Resolve a checked text (None: no setting): ``latest`` becomes this moment.

    A time without a zone is in the zone of Spark's session.
    """
    if text is None:
        return None
    if text == EARLIEST:
        return Seek(to="earliest")
    if text == LATEST:
        # modification times of files have milliseconds
        return Seek(to="latest", since=_micros(datetime.now(UTC)) // 1000 * 1000)
    time = datetime.fromisoformat(text)
    return Seek(to="time", since=_in_session(spark, time) if time.tzinfo is None else _micros(time))


def _micros(time: datetime) -> int:
    elapsed = time - _EPOCH
    return (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds


def _in_session(spark: SparkSession, time: datetime) -> int:
    found = spark.sql("SELECT unix_micros(CAST(:time AS TIMESTAMP))", {"time": time.isoformat()}).first()
    assert found is not None  # SELECT without FROM returns one row
    return int(found[0])
