"""A test case as plain data: the content of a file in the notation (see notation.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

from watersmeet.errors import WatersmeetError

Cells = tuple[str | None, ...]
"""The cells of a row as text; None is NULL."""

COUNTERS = ("late", "quarantined", "filtered", "behind", "evicted", "reopened", "expired", "too_old")
"""The counters that a case can check for each stream; they count from the start of the query."""


class NotationError(WatersmeetError):
    """A case file, or a cell in it, does not follow the notation; ``line`` is the line in the file, if known."""

    def __init__(
        self, message: str, *, detail: str | None = None, hint: str | None = None, line: int | None = None
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.line = line


@contextmanager
def at_line(line: int) -> Iterator[None]:
    """Add the line to a ``NotationError`` that is raised inside without one."""
    try:
        yield
    except NotationError as error:
        error.line = error.line or line
        raise


class ControlKind(Enum):
    """The kinds of control inputs."""

    END = "end"
    IDLE = "idle"
    ADVANCE = "advance"
    RESTART = "restart"


class Compare(Enum):
    """What to compare the run of a case with."""

    STEPS = "the changes of each step with its expectation, and its checks"
    TOTAL = "the consolidated changes of all steps with the expectation of the last step"


@dataclass(frozen=True, slots=True)
class Change:
    """One expected output row: weight +1 (inserted) or -1 (deleted).  Consolidated, its weight is any number but 0."""

    weight: int
    cells: Cells
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expected outcome of a step; ``line`` is the line of ``<<<``.

    ``counts`` has the value of each (counter, stream) to check, ``state`` the number of stored rows (None: no check).
    """

    rows: tuple[Change, ...] = ()
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    state: int | None = None
    line: int = 0


@dataclass(frozen=True, slots=True)
class InputBlock:
    """Rows for one stream: ``cells`` or ``raw`` records, and the line of each; ``line`` is the line of ``>>>``.

    For an external table (``is_table``) these are all its rows from this step on.  If any row starts with a sign,
    ``deltas`` has +1, -1, or None for no sign, for each of ``cells``.
    """

    stream: str
    cells: tuple[Cells, ...] = ()
    raw: tuple[str, ...] = ()
    line: int = 0
    lines: tuple[int, ...] = field(default=(), compare=False)
    deltas: tuple[int | None, ...] = ()
    is_table: bool = False


@dataclass(frozen=True, slots=True)
class Control:
    """A control input.  IDLE and ADVANCE have a ``stream``, ADVANCE a ``value`` (text, in the stream's unit)."""

    kind: ControlKind
    stream: str = ""
    value: str = ""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Step:
    """One micro-batch and its expected outcome.  ``line`` is the line of its first input or control."""

    inputs: tuple[InputBlock, ...]
    controls: tuple[Control, ...]
    expected: Expectation
    line: int


@dataclass(frozen=True, slots=True)
class Case:
    """One test case.  ``error`` is None unless the script must fail; ``line`` is the line of the title."""

    title: str
    line: int
    path: str
    script: str
    steps: tuple[Step, ...]
    as_written: bool = False
    error: tuple[str, ...] | None = None
    compare: Compare = Compare.STEPS

    @property
    def script_in_place(self) -> str:
        """The script after as many empty lines as precede it in the file, so that its positions are the file's."""
        return "\n" * self.line + self.script
