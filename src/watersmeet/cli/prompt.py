"""The shell's prompt: history, completion, highlighting, and when Enter executes a statement."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_completions, has_focus
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.output import Output
from pygments.lexers.sql import SqlLexer  # type: ignore[import-untyped]
from pygments.token import Keyword, Name  # type: ignore[import-untyped]

from watersmeet.cli.live import View
from watersmeet.cli.parameters import make_workspace
from watersmeet.cli.private_files import create_private
from watersmeet.errors import WatersmeetError

HISTORY_NAME = "history"
VIEW = "view"
COMMANDS = ("help", "exit", "quit", VIEW)
_WORDS = """
SELECT FROM WHERE JOIN INNER LEFT RIGHT FULL OUTER SEMI ANTI ON AND OR NOT IN EXISTS BETWEEN LIKE IS NULL DISTINCT
CASE WHEN THEN ELSE END CAST AS ORDER BY UNION ALL INTERVAL SECONDS MINUTES HOURS DAYS WITHIN GRACE PERIOD EMIT
FINAL CHANGELOG SETTINGS CREATE MUTABLE STREAM IF WATERMARK FOR PRIMARY KEY WITH INSERT INTO VALUES SHOW STREAMS
QUERIES TABLES DESCRIBE DROP EXPLAIN STOP QUERY BIGINT INT DOUBLE STRING BOOLEAN TIMESTAMP DATE DECIMAL TRUE FALSE
"""
KEYWORDS = tuple(_WORDS.split())

#: Returns the streams by name, each with its columns.
Streams = Callable[[], Mapping[str, tuple[str, ...]]]

_BEGUN = re.compile(r"\w*$")
_NAMED = re.compile(r"\b(?:FROM|JOIN|,)\s+`?(\w+)`?(?:\s+(?:AS\s+)?`?(\w+)`?)?", re.IGNORECASE)


class SqlCompleter(Completer):
    """Completes keywords, streams and columns: columns after ``alias.``, streams after FROM and JOIN."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Yield names that start with the word before the cursor."""
        begun = _BEGUN.search(document.text_before_cursor)
        word = begun[0] if begun else ""
        before = document.text_before_cursor[: len(document.text_before_cursor) - len(word)]
        if not word and not before.endswith(".") and complete_event.text_inserted:
            return
        for name in self._candidates(before, document.text):
            if name.lower().startswith(word.lower()):
                # Keywords keep the case of the word typed so far.
                shown = name.lower() if name in KEYWORDS and word.islower() else name
                yield Completion(shown, start_position=-len(word))

    def _candidates(self, before: str, text: str) -> Iterable[str]:
        streams = {name.lower(): columns for name, columns in self._streams().items()}
        if (dotted := re.search(r"(\w+)\.$", before)) is not None:
            alias = dotted[1].lower()
            return streams.get(_aliases(text).get(alias, alias), ())
        if before.strip().lower() == VIEW:
            return [view.value for view in View]
        if re.search(r"\b(FROM|JOIN|INTO|DESCRIBE|STREAM)\s+$", before, re.IGNORECASE):
            return (*self._streams(), *(("IF",) if before.rstrip().upper().endswith("STREAM") else ()))
        used = set(_aliases(text).values()) & set(streams)
        columns = [column for name in sorted(used or set(streams)) for column in streams[name]]
        first = COMMANDS if not before.strip() else ()
        return dict.fromkeys((*columns, *self._streams(), *KEYWORDS, *first))


def _aliases(text: str) -> dict[str, str]:
    """Return the streams in a text, in lower case, by name and by alias."""
    found: dict[str, str] = {}
    for match in _NAMED.finditer(text):
        name = match[1].lower()
        found[name] = name
        if match[2] is not None and match[2].upper() not in KEYWORDS:
            found[match[2].lower()] = name
    return found


class WatersmeetSqlLexer(SqlLexer):  # type: ignore[misc]
    """Highlights SQL with the keywords of Watersmeet."""

    name = "Watersmeet SQL"

    def get_tokens_unprocessed(self, text: str, stack: Iterable[str] = ("root",)) -> Iterator[tuple[int, Any, str]]:
        """Yield the tokens of SQL; names that are keywords of Watersmeet become keywords."""
        for index, token, value in super().get_tokens_unprocessed(text, stack):
            yield index, Keyword if token in Name and value.upper() in KEYWORDS else token, value


def is_finished(text: str) -> bool:
    """Return whether Enter executes the text: a command of the shell, or statements that end with a semicolon."""
    if text.strip().lower() in COMMANDS or text.lower().split()[:1] == [VIEW]:
        return True
    from watersmeet.sql.parse import is_complete  # not before the prompt is there

    try:
        return is_complete(text)
    except WatersmeetError:
        return True  # executing it reports the error


def key_bindings() -> KeyBindings:
    """Return the binding of Enter: accept a selected completion, execute a finished text, else start a new line."""
    bindings = KeyBindings()

    @bindings.add("enter", filter=has_focus(DEFAULT_BUFFER))
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if has_completions() and buffer.complete_state is not None and buffer.complete_state.current_completion:
            buffer.complete_state = None
        elif is_finished(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return bindings


def make_prompt(
    workspace: Path, streams: Streams, *, input: Input | None = None, output: Output | None = None
) -> PromptSession[str]:
    """Return the prompt, with its history in the workspace; ``input`` and ``output`` default to the terminal."""
    make_workspace(workspace)
    history = workspace / HISTORY_NAME
    create_private(history)
    return PromptSession(
        message="watersmeet> ",
        prompt_continuation=lambda _width, _line, wraps: "" if wraps else "        ... ",
        multiline=True,
        history=FileHistory(str(history)),
        completer=SqlCompleter(streams),
        complete_while_typing=False,
        lexer=PygmentsLexer(WatersmeetSqlLexer),
        key_bindings=key_bindings(),
        input=input,
        output=output,
    )
