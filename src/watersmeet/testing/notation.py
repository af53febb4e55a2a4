"""The text notation of streaming test cases: SQL, input rows and the expected changelog, step by step.

A file (suffix ``.wmt``) holds cases.  A case is a title, an SQL script and then steps; a step is one micro-batch::

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
``>>> STREAM``             input rows, one per line, cells in the order of the declared columns; in a stream that
                           changes a row may start with ``- `` (the row is deleted) or ``+ `` (the default)
``>>> STREAM raw``         records as raw text in the stream's format, one per line
``>>> table TABLE``        all rows of an external table from this step on (none before), whatever its connector
``>>> end``                end of all input
``>>> idle STREAM``        the stream does not hold the frontier back until its next row
``>>> advance STREAM T``   rows of the stream before T are no longer expected
``>>> restart``            stop, and start again from the checkpoint, before this step's rows
``<<<``                    the expected outcome: ``+ cells``, ``- cells``, and the checks ``late STREAM N``,
                           ``quarantined STREAM N``, ``filtered STREAM N``, ``behind STREAM N``,
                           ``evicted STREAM N``, ``reopened STREAM N``, ``expired STREAM N``,
                           ``too_old STREAM N`` (all cumulative),
                           ``state N`` (live rows)
``!!!``                    instead of steps: lines that must occur, in order, in the error of the script (line 1 in it
                           is the first line of the script)
``--``                     a comment (not in raw input)

A row is late by the frontiers before its step.  Controls take effect at the end of the step, with its rows.  Commas
separate cells, which may be in single or double quotes (double a quote to include it).  A bare ``NULL`` or ``∅`` is
null; in quotes it is text.
"""

from __future__ import annotations

import re
from pathlib import Path

from watersmeet.testing.case import (
    COUNTERS,
    Case,
    Cells,
    Change,
    Control,
    ControlKind,
    Expectation,
    InputBlock,
    NotationError,
    Step,
)
from watersmeet.testing.cells import MARKERS, split_cells

__all__ = ["SUFFIX", "Case", "NotationError", "parse_cases", "read_cases"]

SUFFIX = ".wmt"
AS_WRITTEN = "[as written]"
_LINE_END = re.compile(r"\r\n|\r|\n")
_CONTROLS = "'>>> end', '>>> restart', '>>> idle STREAM' or '>>> advance STREAM TIME'"


def read_cases(path: Path | str) -> list[Case]:
    """Return the cases of one file.  Raises NotationError if it is not UTF-8 text or not in the notation."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")  # some editors write a byte order mark
    except UnicodeDecodeError as error:
        raise NotationError(f"{path} is not UTF-8 text: byte {error.start} cannot be read") from None
    except OSError as error:
        raise NotationError(f"{path} cannot be read: {error.strerror}") from error
    return parse_cases(text, str(path))


def parse_cases(text: str, path: str = "<text>") -> list[Case]:
    """Return the cases in ``text``, at least one.  Raises NotationError with FILE:LINE, where FILE is ``path``."""
    return _Parser(text, path).cases()


class _Parser:
    """Parses a file line by line; ``at`` is the index of the next line."""

    def __init__(self, text: str, path: str) -> None:
        # Not splitlines: raw records may contain other characters that it treats as line ends.
        self.lines = _LINE_END.split(text)
        self.path = path
        self.at = 0

    def cases(self) -> list[Case]:
        found: list[Case] = []
        while (line := self._next_content()) is not None:
            if not line.startswith("==="):
                raise self._error("a case starts with '=== TITLE'", found=line)
            found.append(self._case(line))
        if not found:
            raise self._error("there is no case here", 1, hint="a case starts with '=== TITLE'")
        titles: dict[str, int] = {}
        for case in found:
            if case.title in titles:
                raise self._error(f"line {titles[case.title]} has the same title", case.line, case.title)
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
        while self._content_line() is not None:
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
        inputs: list[InputBlock] = []
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
            case ["end" | "restart" as word]:
                return Control(ControlKind(word), line=self.at)
            case ["idle", stream]:
                return Control(ControlKind.IDLE, stream, line=self.at)
            case ["advance", stream, value]:
                return Control(ControlKind.ADVANCE, stream, value.strip().strip("'\""), self.at)
            case ["idle" | "advance" | "end" | "restart" as word, *_]:
                raise self._error(f"the control {word!r} is incomplete or has extra words: expected {_CONTROLS}")
        return None

    def _input(self, words: list[str]) -> InputBlock:
        line = self.at
        match words:
            case [stream]:
                block = self._block()
                deltas = tuple(_sign(text) for _, text in block)
                rows = tuple(
                    self._cells(text if delta is None else text[1:], number)
                    for delta, (number, text) in zip(deltas, block, strict=True)
                )
                lines = tuple(number for number, _ in block)
                return InputBlock(stream, cells=rows, line=line, lines=lines, deltas=deltas if any(deltas) else ())
            case ["table", table] if table != "raw":
                block = self._block()
                rows = tuple(self._cells(text, number) for number, text in block)
                lines = tuple(number for number, _ in block)
                return InputBlock(table, cells=rows, line=line, lines=lines, is_table=True)
            case [stream, "raw"]:
                block = self._block(raw=True)
                records = tuple(text for _, text in block)
                return InputBlock(stream, raw=records, line=line, lines=tuple(number for number, _ in block))
        raise self._error(
            "'>>> STREAM', '>>> STREAM raw', '>>> table TABLE' or a control is expected", found=self.lines[line - 1]
        )

    def _expectation(self) -> Expectation:
        line = self.at + 1
        self._bare_marker("<<<")
        rows: list[Change] = []
        counts: dict[tuple[str, str], int] = {}
        state: int | None = None
        for number, text in self._block():
            if text[:2].strip() in ("+", "-"):
                rows.append(Change(1 if text[0] == "+" else -1, self._cells(text[1:], number), number))
                continue
            match text.split():
                case ["state", count] if count.isdecimal() and state is None:
                    state = int(count)
                case [name, stream, count] if name in COUNTERS and count.isdecimal():
                    if (name, stream) in counts:
                        raise self._error(f"'{name} {stream}' appears twice in this step", number, text)
                    counts[name, stream] = int(count)
                case _:
                    allowed = "'+ cells', '- cells', 'late|quarantined|filtered|behind STREAM N' or one 'state N'"
                    raise self._error(f"{allowed} is expected", number, text)
        return Expectation(tuple(rows), counts, state, line)

    def _block(self, *, raw: bool = False) -> list[tuple[int, str]]:
        """Return the lines up to the next marker, with numbers, without blank lines and comments (kept in raw text)."""
        content: list[tuple[int, str]] = []
        while (line := self._content_line(raw=raw)) is not None:
            self.at += 1
            if line.strip() and (raw or not line.startswith("--")):
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
            raise self._error(f"{marker!r} must be alone on its line", found=self.lines[self.at - 1])

    def _peek(self) -> str | None:
        return self.lines[self.at] if self.at < len(self.lines) else None

    def _content_line(self, *, raw: bool = False) -> str | None:
        """Return the next line without consuming it; None at a marker or at the end."""
        line = self._peek()
        if line is None or line.startswith(MARKERS):
            return None
        if not raw and (marker := line.lstrip()[:3]) in MARKERS:
            raise self._error(f"'{marker}' must be at the start of its line", self.at + 1, line)
        return line

    def _next_content(self, stop: str | None = None) -> str | None:
        """Skip blank lines and comments, then consume a line; consume none at the end, or before ``stop``."""
        while (line := self._peek()) is not None and (not line.strip() or line.startswith("--")):
            self.at += 1
        if line is None or (stop and line.startswith(stop)):
            return None
        self.at += 1
        return line

    def _error(
        self, what: str, line: int | None = None, found: str | None = None, *, hint: str | None = None
    ) -> NotationError:
        number = self.at if line is None else line
        detail = None if found is None else f"found: {found.strip()}"
        return NotationError(f"{self.path}:{number}: {what}", detail=detail, hint=hint, line=number)


def _sign(row: str) -> int | None:
    """Return the sign at the start of a row, if a blank follows it."""
    return {"+": 1, "-": -1}.get(row[0]) if row[1:2].isspace() else None
