"""What the planner tells the workers: plain data, shipped with each task."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from watersmeet.engine.hot_keys import SpreadRule
from watersmeet.kernels.api import Kernel


@dataclass(frozen=True, slots=True)
class PackSpec:
    """How rows of one ``source`` become frames of one ``operator``'s ``input``.

    The columns of ``schema`` (``$t`` among them) go into the frames; ``hashes`` route them and are dropped unless
    they stand in the schema too.  ``delay`` is the declared delay plus grace, in units of the time axis.
    ``sequence`` names the column with a row's place in its source, where rows carry it.
    With ``spreads`` rows of hot keys may go to other buckets than that of their key (hot_keys.py).
    ``fails_on_bad`` stops at the first malformed row in place of setting it aside.
    Rows may bring further columns: ``$keep`` (the filter), ``$part`` (where a frontier comes from), ``$bad`` (why a row
    is malformed), ``$raw`` (the text of rows that may have to be set aside) and ``$frontier`` (a frontier stored by the
    stream's producer, in rows of their own).  With ``keeps_late`` the text travels in the frames.
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


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input of an operator: a source, or the output of an earlier operator (then ``source`` is None).

    ``lag`` is how far the event time of its rows may lie behind the frontier that its sender tells (None: any far, so
    the input has no frontier before its end);
    ``origin`` says what its columns are made of, so that stored ones are never taken for others;
    ``parts`` are the senders that must be heard before the input has a frontier.
    One that does not ``hold back`` leaves the operator's frontier to the others; its rows are late by its own.
    ``scale`` tells people its times: units of the axis in one of the event time's column (None: they are timestamps).
    """

    schema: pa.Schema
    source: str | None
    parts: tuple[str, ...]
    lag: int | None = 0
    origin: str = ""
    holds_back: bool = True
    scale: int | None = None


@dataclass(frozen=True, slots=True)
class Downstream:
    """Where an operator's results go next: an input of another operator, by that operator's key."""

    input: int
    hashes: tuple[str, ...]
    buckets: tuple[int, ...]
    times: tuple[str, ...]  # the result columns that are the event time there: the first that is not NULL


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """One operator, the same for all its buckets."""

    name: str
    kernel: Kernel
    inputs: tuple[InputSpec, ...]
    buckets: tuple[int, ...]
    fingerprint: str
    output: pa.Schema
    downstream: Downstream | None = None
    max_state_bytes: int | None = None  # of all buckets together
    most_hot_rows: int | None = None  # of each bucket in memory, the others on disk (None: all in memory)
    accepts_late: bool = False  # no window is ever closed: rows are never late
    spread: SpreadRule | None = None  # rows of hot keys may be spread over the buckets (None: each key has one)
