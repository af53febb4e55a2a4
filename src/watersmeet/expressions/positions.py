"""Positions in the SQL text.

sqlglot records where a token ends. Before parsing, ``anchor`` replaces this by the line and column of its first
character, 1-based and counted over the whole text. The parser copies them to the nodes' ``meta``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from watersmeet.errors import Position

WIDEST_EXCERPT = 110


def line_starts(text: str) -> list[int]:
    """Return the offsets at which the lines of ``text`` begin."""
    return [0, *(offset + 1 for offset, char in enumerate(text) if char == "\n")]


def locate(text: str, offset: int) -> Position:
    """Return the position of the character at ``offset`` (0-based) of ``text``."""
    starts = line_starts(text)
    line = bisect_right(starts, offset)
    return Position(line, offset - starts[line - 1] + 1)


def anchor(tokens: Iterable[Token], text: str) -> None:
    """Set each token's line and column to those of its first character in ``text``."""
    starts = line_starts(text)
    for token in tokens:
        token.line = bisect_right(starts, token.start)
        token.col = token.start - starts[token.line - 1] + 1


def token_position(token: Token) -> Position:
    """Return the position of an anchored token."""
    return Position(token.line, token.col)


def place(node: exp.Expr, token: Token) -> None:
    """Record that ``node`` begins at ``token``, unless it has a position already."""
    if "line" not in node.meta:
        node.update_positions(token)


def position_of(node: exp.Expr | None) -> Position | None:
    """Return where ``node`` begins in the text it was parsed from.

    This is the node's own position, else the first position among its parts, else that of the nearest enclosing
    node. None only for trees that were not parsed.
    """
    while node is not None:
        own = _own(node)
        if own:
            return own
        parts = [position for part in node.walk() if (position := _own(part))]
        if parts:
            return min(parts)
        node = node.parent
    return None


def _own(node: exp.Expr) -> Position | None:
    line, col = node.meta.get("line"), node.meta.get("col")
    return Position(line, col) if line is not None and col is not None else None


def excerpt(text: str, start: int, end: int) -> str:
    """Return the line of ``text`` at ``start``, with carets below it from ``start`` to ``end`` (exclusive).

    A long line is cut on both sides of the carets. Both lines keep tabs, so they stay aligned.
    """
    starts = line_starts(text)
    line = bisect_right(starts, start)
    first = starts[line - 1]
    last = text.find("\n", first)
    content = text[first : len(text) if last < 0 else last].rstrip("\r")
    col = start - first
    width = max(1, min(end - start, len(content) - col))
    cut = max(0, col - WIDEST_EXCERPT // 2) if len(content) > WIDEST_EXCERPT else 0
    shown = content[cut : cut + WIDEST_EXCERPT]
    before = "..." if cut else ""
    after = "..." if cut + WIDEST_EXCERPT < len(content) else ""
    pad = " " * len(before) + "".join("\t" if char == "\t" else " " for char in content[cut:col])
    gutter = f"{line} | "
    return f"{gutter}{before}{shown}{after}\n{' ' * (len(gutter) - 2)}| {pad}{'^' * width}"
