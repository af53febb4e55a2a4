"""What a query needs to start, and what starts Spark queries for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.runtime.checkpoint import Checkpoint
from watersmeet.runtime.outages import Outages
from watersmeet.runtime.run_progress import RunInput
from watersmeet.runtime.said import Said
from watersmeet.settings.seek import Seek, Starts

if TYPE_CHECKING:
    from watersmeet.runtime.real_time.sinks import LiveSink
    from watersmeet.runtime.source_frames import Source


@dataclass(frozen=True, slots=True)
class Output:
    """Where results go: the ``target`` is a stream, ``query`` the name of the query that feeds it.

    ``write`` takes each batch's rows, its number, and a key that identifies query and batch.  ``reach`` raises
    ``SinkOutageError`` if the target is known not to answer now.  A target that ``is_keyed`` keeps the newest row of
    each key.
    """

    query: str
    target: str
    write: Callable[[DataFrame, int, str], object]
    reach: Callable[[], None] = lambda: None
    is_keyed: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """What a query, or several that run as one, need to start.

    ``open_sources`` takes the session to read in, whether batches are limited, where streams begin, and where they have
    begun (None: Spark's checkpoint keeps that).  ``limits_batches`` is set if a batch may leave out rows that are
    there.  ``outputs`` has one for each query of the plan, and so has what ``live_sinks`` opens in real time.
    ``keep_side_rows`` takes number and key of a batch that has been written.  ``frontier_lag`` is set if the target
    stores the query's frontier.  ``outages`` waits where another system cannot be reached.  ``said`` is what the
    checkpoint notes of the query.
    """

    name: str
    plan: PhysicalPlan
    limits_batches: bool
    open_sources: Callable[[SparkSession, bool, Seek | None, Starts | None], Mapping[str, Source]]
    outputs: tuple[Output, ...]
    live_sinks: Callable[[], Sequence[LiveSink]]
    keep_side_rows: Callable[[int, str], None]
    checkpoint: Checkpoint
    outages: Outages
    frontier_lag: int | None = None
    said: Said | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A Spark query that has been started, what is done when it has ended, and how to measure what it reads.

    ``input`` is None where a query runs until it is stopped.
    """

    query: StreamingQuery
    close: Callable[[], None]
    input: RunInput | None = None


class Host(Protocol):
    """A way to run a job on Spark."""

    def start(self, *, limited: bool, available_now: bool, declares_end: bool = False) -> Run:
        """Start one Spark query on the job's checkpoint.

        ``limited`` applies the limits on batch sizes.  ``available_now`` ends the query when it has processed what was
        there at its start, and with ``declares_end`` that is the whole input.
        """

    def has_run(self, progress: Mapping[str, Any]) -> None:
        """Take note of a batch that Spark has committed."""

    def cause(self, error: Exception) -> Exception:
        """The error to report for one with which Spark's query ended."""

    def starts_again(self, error: Exception) -> bool:
        """Whether a Spark query that failed, not by an outage, should be followed by another one."""


def batch_key(name: str, checkpoint_id: str, batch: int) -> str:
    """Identifies a batch of a query, also when it is written again."""
    return f"{query_key(name, checkpoint_id)}-{batch:012d}"


def query_key(name: str, checkpoint_id: str) -> str:
    """Identifies a query and its checkpoint."""
    return f"{name}-{checkpoint_id[:8]}"
