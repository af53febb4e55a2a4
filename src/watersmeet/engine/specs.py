"""Specs: the physical plan as plain data for the workers, shipped with each task."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from watersmeet.columns import ID
from watersmeet.engine.gathering import Gathering
from watersmeet.engine.hot_keys import SpreadRule
from watersmeet.engine.keys import HashedKeys
from watersmeet.engine.row_hashes import of_values
from watersmeet.kernels.api import Kernel
from watersmeet.state.hot_bounds import HotBounds


@dataclass(frozen=True, slots=True)
class PackSpec:
    """How rows of one ``source`` become frames of one ``operator``'s ``input``.

    - ``schema``: the columns of the frames, ``$t`` among them.
    - ``hashes``: the columns that route rows; they are dropped unless they are in the schema.
    - ``delay``: the declared delay plus the grace period, in units of ``$t``.
    - ``sequence``: the column with a row's place in its source, if rows carry it.
    - ``spreads``: rows of hot keys may go to other buckets than their home (hot_keys.py).
    - ``fails_on_bad``: the first malformed row stops the query; otherwise bad rows are quarantined.
    - ``keeps_late``: frames carry the text of rows, for the side output of late rows.
    - ``max_future``: the most that a row's time may be after its arrival, in microseconds; rows then have ``$arrival``.
    - ``dated_by``: the column that is the time of rows, where it is not the event time.
    - ``gathering``: how rows become those of ``schema``, if they are gathered (gathering.py).
    - ``ties``: further terms of the declared order, if rows are late by them (ties.py): columns that may descend.

    Rows may have further columns: ``$keep`` (the filter), ``$part`` (where a frontier comes from), ``$bad`` (why a row
    is malformed), ``$raw`` (the text for the side output), ``$arrival`` (when a row arrived, in microseconds since
    1970) and ``$frontier`` (a frontier that the stream's producer stored, in a row of its own).
    """

    source: str
    operator: str
    input: int
    schema: pa.Schema
    hashes: tuple[str, ...]
    buckets: tuple[int, ...]
    delay: int
    sequence: str | None = None
    spreads: bool = False
    fails_on_bad: bool = False
    keeps_late: bool = False
    max_future: int | None = None
    dated_by: str | None = None
    gathering: Gathering | None = None
    ties: tuple[tuple[str, bool], ...] = ()

    def kept_in(self, bucket: int) -> PackSpec:
        """The same for results of a bucket that stay in its task: rows without a key too, as all others by theirs."""
        return self if self.hashes else replace(self, buckets=(bucket,))


@dataclass(frozen=True, slots=True)
class RowEnd:
    """The time from which on a row of an input is late, later than its own: DuckDB's ``sql`` over a column."""

    column: str
    sql: str


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input of an operator: a source, or the output of an earlier operator (then ``source`` is None).

    - ``parts``: the senders that must report before the input has a frontier.
    - ``lag``: how far event times may lie behind the frontier that the sender reports, in units of ``$t`` (None:
      without limit, so the input has no frontier before its end).
    - ``origin``: what the columns are computed from, so that stored columns are not mistaken for others.
    - ``lateness``: how far behind the frontier that results wait for rows are still taken; the operator's own frontier
      is so much less, and rows in between are counted as ``reopened``.
    - ``retention``: how far behind the frontier rows are still taken, without any effect on the frontier, in units of
      ``$t`` (None: however far); those behind it are counted as ``reopened``.
    - ``holds_back``: if False, the operator's frontier ignores the input, and its rows are late by its own frontier.
    - ``late_by_own``: rows behind the input's own frontier are late too, though the operator's is not so far.
    - ``waited_for``: how far the operator's frontier stays behind the input's own, as rows of others wait for its rows.
    - ``cut_by``: columns whose equal rows, of all inputs, come in one step of a batch; without columns, all rows are
      equal.  None: they may come in any step.
    - ``is_of_results``: the rows are results of another operator of the query; control events move its frontier.
    - ``until``: when a row is late, if not by its own time: once its window has ended.
    - ``order``: the declared order, if rows are late by all its terms (ties.py); otherwise empty.
    - ``label``, ``time``, ``scale``: for texts, the alias of the stream that dates the rows, its event-time column,
      and the units of ``$t`` in one unit of that column (None: a timestamp).
    """

    schema: pa.Schema
    source: str | None
    parts: tuple[str, ...]
    lag: int | None = 0
    origin: str = ""
    holds_back: bool = True
    lateness: int = 0
    label: str = ""
    time: str = ""
    scale: int | None = None
    retention: int | None = 0
    late_by_own: bool = False
    cut_by: tuple[str, ...] | None = None
    is_of_results: bool = False
    until: RowEnd | None = None
    waited_for: int = 0
    order: str = ""


@dataclass(frozen=True, slots=True)
class Downstream:
    """The input of another operator that receives an operator's results, routed by that operator's key."""

    input: int
    hashes: tuple[str, ...]
    buckets: tuple[int, ...]
    times: tuple[str, ...]  # result columns; the first that is not NULL is the event time there
    in_task: bool = False  # the operator runs in the same task, over the same bucket


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """One operator, the same for all its buckets.

    Its results have the schema ``output``, those for each further query that it serves one of ``further``.
    """

    name: str
    kernel: Kernel
    inputs: tuple[InputSpec, ...]
    buckets: tuple[int, ...]
    fingerprint: str
    output: pa.Schema
    further: tuple[pa.Schema, ...] = ()
    downstream: Downstream | None = None
    max_state_bytes: int | None = None  # of all buckets together
    gives_matches: bool = False  # every result is a match, and counted as one
    evicts_at_limit: bool = False  # the kernel evicts rows there; otherwise the query stops
    hot: HotBounds | None = None  # how much of each bucket's state is in memory, the rest on disk (None: all of it)
    accepts_late: bool = False  # no window ever closes: rows are never late
    takes_pieces: bool = False  # a batch may be taken in several steps
    divides_keys: bool = False  # rows with equal ``cut_by`` too, where they alone are more than a step may take
    taken_last: tuple[int, ...] = ()  # inputs whose rows come after those of others, where a batch takes several steps
    waiting: tuple[str, ...] = ()  # relations whose rows are due once the frontier has passed them (engine/stages.py)
    spread: SpreadRule | None = None  # how rows of hot keys are spread over buckets (None: never)
    hashed: tuple[HashedKeys, ...] = ()  # by input: where stored rows have their keys
    carried: tuple[str, ...] = ()  # columns of text or bytes that the kernel only passes on (state/large_values.py)

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        """The schema of the results of each query that it serves."""
        return (self.output, *self.further)

    @property
    def gives_ids(self) -> bool:
        """Whether results carry ids, made of the numbers of rows, by which they are retracted.

        Every attempt at a batch must then number its rows alike: another operator may hold results of one attempt, and
        the state be that of another.
        """
        return any(ID in schema.names for schema in self.outputs)

    @property
    def cut_by(self) -> dict[int, tuple[str, ...]]:
        """Of the inputs of which some rows come in one step: the columns in which these are equal."""
        found = {number: input.cut_by for number, input in enumerate(self.inputs) if input.cut_by is not None}
        if self.gives_ids:
            found |= {n: of_values(each.schema.names) for n, each in enumerate(self.inputs) if each.cut_by is None}
        return found
