"""A test case as plain data: what a file in the notation says (see notation.py), before any of it is run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

from watersmeet.errors import WatersmeetError

Cells = tuple[str | None, ...]
"""The cells of a row as text; None is NULL."""

COUNTERS = ("late", "quarantined", "filtered", "behind")
"""What is counted for each stream, since the query began."""


class NotationError(WatersmeetError):
    """A case file, or a cell in it, does not follow the notation; ``line`` is its line in the file, where known."""

    def __init__(
        self, message: str, *, detail: str | None = None, hint: str | None = None, line: int | None = None
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.line = line


@contextmanager
def at_line(line: int) -> Iterator[None]:
    """Gives a ``NotationError`` raised within the line that it lacks."""
    try:
        yield
    except NotationError as error:
        error.line = error.line or line
        raise


class ControlKind(Enum):
    """What a control input does."""

    END = "end"
    IDLE = "idle"
    ADVANCE = "advance"
    RESTART = "restart"


class Compare(Enum):
    """What a run of the case is compared with."""

    STEPS = "each step's changes with that step's expectation, and its checks"
    TOTAL = "the consolidated changes of all steps with the last step's expectation"


@dataclass(frozen=True, slots=True)
class Change:
    """One expected output row: weight +1 (inserted) or -1 (deleted); a consolidated one may have any but 0."""

    weight: int
    cells: Cells
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a step must bring; ``line`` is that of ``<<<``.

    ``counts`` has a value for each (counter, stream) that is checked, ``state`` the rows held (None: not checked).
    """

    rows: tuple[Change, ...] = ()
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    state: int | None = None
    line: int = 0


@dataclass(frozen=True, slots=True)
class InputBlock:
    """Rows for one stream: either ``cells`` or ``raw`` records, and the line of each; ``line`` is that of ``>>>``.

    For an outside table (``is_table``) they are all its rows from this step on.
    ``deltas`` is beside ``cells`` where a row begins with its sign: +1, -1, or None for a row without one.
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
    """A control input; ``stream`` for IDLE and ADVANCE, ``value`` (text, in the unit of its stream) for ADVANCE."""

    kind: ControlKind
    stream: str = ""
    value: str = ""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Step:
    """One micro-batch and what it must bring. ``line`` is that of its first input or control."""

    inputs: tuple[InputBlock, ...]
    controls: tuple[Control, ...]
    expected: Expectation
    line: int


@dataclass(frozen=True, slots=True)
class Case:
    """One test case. ``error`` is None unless the script must fail; ``line`` is that of the title."""

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
        """The script after as many blank lines as stand before it in the file: positions in it are the file's."""
        return "\n" * self.line + self.script
