"""The text notation of streaming test cases: SQL, timed input rows and the expected changelog, step by step.

A file (suffix ``.wmt``) holds cases. A case is a title, an SQL script and then steps; a step is one micro-batch::

    === a left join pads once the window is over
    CREATE STREAM o (id INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
    CREATE STREAM p (id INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
    SELECT o.id, p.ts FROM o LEFT JOIN p ON o.id = p.id WITHIN INTERVAL '10' SECONDS EMIT FINAL;

    >>> o
    1, 5
    >>> p
    1, 8
    <<<
    + 1, 8
    state 2

    >>> end
    <<<

Markers, each at the start of a line:

``=== TITLE``              a case; ``[as written]`` at the end forbids regrouping of its steps
``>>> STREAM``             input rows, one a line, cells in the order of the declared columns
``>>> STREAM raw``         raw text for the stream's format, one record a line, taken as it stands
``>>> end``                end of all input
``>>> idle STREAM``        the stream stops holding the frontier back until it speaks again
``>>> advance STREAM T``   rows of the stream before T are no longer expected
``>>> restart``            stop, and start again from the checkpoint, before this step's rows
``<<<``                    what the step must bring: ``+ cells``, ``- cells``, and the checks ``late STREAM N``,
                           ``quarantined STREAM N``, ``filtered STREAM N`` (all cumulative), ``state N`` (live rows)
``!!!``                    in place of steps: lines that must occur, in order, in the error the script gives
``--``                     a comment (not within raw input)

Rows of a step are judged by the frontiers before it; its controls take effect with its rows, at its end.
Cells are separated by commas and may stand in single or double quotes (a quote within is doubled). A bare ``NULL``
or ``∅`` is null; in quotes it is text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from watersmeet.errors import WatersmeetError

SUFFIX = ".wmt"
AS_WRITTEN = "[as written]"
NULLS = ("NULL", "∅")
COUNTERS = ("late", "quarantined", "filtered")

Cells = tuple[str | None, ...]


class NotationError(WatersmeetError):
    """A case file, or a cell in it, does not follow the notation; the message begins with FILE:LINE."""


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


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a step must bring. Checks that are not stated are empty or None; ``line`` is that of ``<<<``."""

    rows: tuple[Change, ...] = ()
    late: dict[str, int] = field(default_factory=dict)
    quarantined: dict[str, int] = field(default_factory=dict)
    filtered: dict[str, int] = field(default_factory=dict)
    state: int | None = None
    line: int = 0


@dataclass(frozen=True, slots=True)
class StepInput:
    """Rows for one stream: either ``cells`` or ``raw`` records. ``line`` is that of ``>>>``."""

    stream: str
    cells: tuple[Cells, ...] = ()
    raw: tuple[str, ...] = ()
    line: int = 0


@dataclass(frozen=True, slots=True)
class Control:
    """A control input; ``stream`` for IDLE and ADVANCE, ``value`` (text, in the unit of its stream) for ADVANCE."""

    kind: ControlKind
    stream: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One micro-batch and what it must bring. ``line`` is that of its first input or control."""

    inputs: tuple[StepInput, ...]
    controls: tuple[Control, ...]
    expected: Expectation
    line: int


@dataclass(frozen=True, slots=True)
class Case:
    """One test case. ``error`` is None unless the script must fail; ``line`` is that of the title.

    Line N of ``script`` is line ``line + N`` of the file.
    """

    title: str
    line: int
    path: str
    script: str
    steps: tuple[Step, ...]
    as_written: bool = False
    error: tuple[str, ...] | None = None
    compare: Compare = Compare.STEPS


def read_cases(path: Path | str) -> list[Case]:
    """The cases of one file. Raises NotationError where the file is not UTF-8 text or breaks the notation."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotationError(f"{path}: cannot be read: {error}") from error
    return parse_cases(text, str(path))


def parse_cases(text: str, path: str = "<text>") -> list[Case]:
    """The cases in ``text``; ``path`` stands in their errors. Raises NotationError with FILE:LINE."""
    return _Parser(text, path).cases()


def split_cells(line: str) -> Cells:
    """The cells of one row. Raises ValueError saying what is wrong with a quote."""
    cells: list[str | None] = []
    at = 0
    while True:
        while at < len(line) and line[at] in " \t":
            at += 1
        if at < len(line) and line[at] in "'\"":
            cell, at = _quoted(line, at)
            cells.append(cell)
        else:
            end = line.find(",", at)
            end = len(line) if end < 0 else end
            bare = line[at:end].strip()
            cells.append(None if bare in NULLS else bare)
            at = end
        if at >= len(line):
            return tuple(cells)
        at += 1


def _quoted(line: str, start: int) -> tuple[str, int]:
    """The text of the quoted cell at ``start``, and where its comma or the end of the line is."""
    quote = line[start]
    at = start + 1
    text = ""
    while True:
        end = line.find(quote, at)
        if end < 0:
            raise ValueError(f"the quote {quote} is not closed")
        text += line[at:end]
        if line[end + 1 : end + 2] != quote:
            break
        text += quote
        at = end + 2
    at = end + 1
    while at < len(line) and line[at] in " \t":
        at += 1
    if at < len(line) and line[at] != ",":
        raise ValueError(f"a comma is expected after {line[start : end + 1]}, found {line[at:]!r}")
    return text, at


class _Parser:
    """Reads a file line by line; ``at`` is the index of the next line."""

    def __init__(self, text: str, path: str) -> None:
        self.lines = text.splitlines()
        self.path = path
        self.at = 0

    def cases(self) -> list[Case]:
        found: list[Case] = []
        while (line := self._next_content()) is not None:
            if not line.startswith("==="):
                raise self._error("a case begins with '=== TITLE'", found=line)
            found.append(self._case(line))
        titles: dict[str, int] = {}
        for case in found:
            if case.title in titles:
                raise self._error(f"the title stands at line {titles[case.title]} already", case.line, case.title)
            titles[case.title] = case.line
        return found

    def _case(self, heading: str) -> Case:
        line = self.at
        title = heading.removeprefix("===").strip()
        as_written = title.endswith(AS_WRITTEN)
        title = title.removesuffix(AS_WRITTEN).strip()
        if not title:
            raise self._error("a case needs a title after '==='")
        script = self._script()
        if not script.strip():
            raise self._error("a case needs an SQL script after its title", line, heading)
        error: tuple[str, ...] | None = None
        steps: tuple[Step, ...] = ()
        marker = self._peek()
        if marker is not None and marker.startswith("!!!"):
            error = self._error_block()
        else:
            steps = self._steps()
        if error is None and not steps:
            raise self._error("a case needs steps ('>>>' and '<<<') or an expected error ('!!!')", line, heading)
        return Case(title, line, self.path, script, steps, as_written, error)

    def _script(self) -> str:
        start = self.at
        while (line := self._peek()) is not None and not line.startswith(("===", ">>>", "<<<", "!!!")):
            self.at += 1
        return "\n".join(self.lines[start : self.at]).rstrip()

    def _error_block(self) -> tuple[str, ...]:
        line = self.at + 1
        self._bare_marker("!!!")
        wanted = tuple(text for _, text in self._block())
        if not wanted:
            raise self._error("'!!!' needs at least one line of the expected error", line)
        if (after := self._peek()) is not None and not after.startswith("==="):
            raise self._error("a case has either steps or '!!!', not both", self.at + 1, after)
        return wanted

    def _steps(self) -> tuple[Step, ...]:
        steps: list[Step] = []
        ended = False
        while (line := self._next_content(stop="===")) is not None:
            if ended:
                raise self._error("nothing can follow the step with '>>> end'", found=line)
            self.at -= 1
            step = self._step()
            steps.append(step)
            ended = any(control.kind is ControlKind.END for control in step.controls)
        return tuple(steps)

    def _step(self) -> Step:
        first = self.at + 1
        inputs: list[StepInput] = []
        controls: list[Control] = []
        while (line := self._next_content(stop="===")) is not None and line.startswith(">>>"):
            words = line.removeprefix(">>>").split(maxsplit=2)
            control = self._control(words)
            if control is None:
                inputs.append(self._input(words))
            else:
                controls.append(control)
        if line is None:
            raise self._error("the step has no expectation ('<<<')", first, self.lines[first - 1])
        if not line.startswith("<<<"):
            raise self._error("'>>>' or '<<<' is expected", found=line)
        if not inputs and not controls:
            raise self._error("a step needs an input or a control ('>>>') before '<<<'")
        self.at -= 1
        return Step(tuple(inputs), tuple(controls), self._expectation(), first)

    def _control(self, words: list[str]) -> Control | None:
        match words:
            case ["end"]:
                return Control(ControlKind.END)
            case ["restart"]:
                return Control(ControlKind.RESTART)
            case ["idle", stream]:
                return Control(ControlKind.IDLE, stream)
            case ["advance", stream, value]:
                return Control(ControlKind.ADVANCE, stream, value.strip().strip("'\""))
            case ["idle" | "advance" | "end" | "restart" as word, *_]:
                forms = "'>>> end', '>>> restart', '>>> idle STREAM' or '>>> advance STREAM TIME'"
                raise self._error(f"the control {word!r} is not complete or has too much: {forms} is expected")
        return None

    def _input(self, words: list[str]) -> StepInput:
        line = self.at
        match words:
            case [stream]:
                rows = tuple(self._cells(text, number) for number, text in self._block())
                return StepInput(stream, cells=rows, line=line)
            case [stream, "raw"]:
                return StepInput(stream, raw=tuple(text for _, text in self._block(comments=False)), line=line)
        raise self._error("'>>> STREAM', '>>> STREAM raw' or a control is expected", found=self.lines[line - 1])

    def _expectation(self) -> Expectation:
        line = self.at + 1
        self._bare_marker("<<<")
        rows: list[Change] = []
        counters: dict[str, dict[str, int]] = {name: {} for name in COUNTERS}
        state: int | None = None
        for number, text in self._block():
            if text[:2].strip() in ("+", "-"):
                rows.append(Change(1 if text[0] == "+" else -1, self._cells(text[1:], number)))
                continue
            match text.split():
                case ["state", count] if count.isdecimal() and state is None:
                    state = int(count)
                case [name, stream, count] if name in COUNTERS and count.isdecimal():
                    if stream in counters[name]:
                        raise self._error(f"'{name} {stream}' stands twice in this step", number, text)
                    counters[name][stream] = int(count)
                case _:
                    allowed = "'+ cells', '- cells', 'late|quarantined|filtered STREAM N' or one 'state N'"
                    raise self._error(f"{allowed} is expected", number, text)
        return Expectation(tuple(rows), state=state, line=line, **counters)

    def _block(self, *, comments: bool = True) -> list[tuple[int, str]]:
        """The lines up to the next marker, without blank ones and comments, each with its number."""
        content: list[tuple[int, str]] = []
        while (line := self._peek()) is not None and not line.startswith(("===", ">>>", "<<<", "!!!")):
            self.at += 1
            if line.strip() and not (comments and line.startswith("--")):
                content.append((self.at, line.strip()))
        return content

    def _cells(self, text: str, number: int) -> Cells:
        try:
            return split_cells(text)
        except ValueError as error:
            raise self._error(str(error), number, text) from error

    def _bare_marker(self, marker: str) -> None:
        self.at += 1
        if self.lines[self.at - 1].strip() != marker:
            raise self._error(f"{marker!r} stands alone on its line", found=self.lines[self.at - 1])

    def _peek(self) -> str | None:
        return self.lines[self.at] if self.at < len(self.lines) else None

    def _next_content(self, stop: str | None = None) -> str | None:
        """Steps over blank lines and comments, then takes a line; at the end, or before ``stop``, takes none."""
        skip: Callable[[str], bool] = lambda text: not text.strip() or text.startswith("--")  # noqa: E731
        while (line := self._peek()) is not None and skip(line):
            self.at += 1
        if line is None or (stop and line.startswith(stop)):
            return None
        self.at += 1
        return line

    def _error(self, what: str, line: int | None = None, found: str | None = None) -> NotationError:
        detail = None if found is None else f"found: {found.strip()}"
        return NotationError(f"{self.path}:{self.at if line is None else line}: {what}", detail=detail)
