"""The entry point of the SQL front end: text to statements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.errors import SqlSyntaxError
from watersmeet.expressions.positions import anchor, excerpt, locate, token_position
from watersmeet.sql.dialect import Watersmeet
from watersmeet.sql.grammar import StatementParser
from watersmeet.sql.statement_sets import is_open_set, split_statements, starts_set, statement_set, without_semicolon
from watersmeet.sql.statements import Statement

DIALECT = Watersmeet()
# What opens a comment, a string or a quoted name, and what closes it.
OPENERS = re.compile(r"--[^\n]*|/\*|\b[rR]'|\b[rR]\"|'|\"|`")
CLOSERS = {
    "'": re.compile(r"(?:[^'\\]|\\.)*'", re.DOTALL),
    '"': re.compile(r'(?:[^"\\]|\\.)*"', re.DOTALL),
    "r'": re.compile(r"[^']*'"),
    'r"': re.compile(r'[^"]*"'),
    "`": re.compile(r"[^`]*`"),
}
#: The longest number: the longest double has 767 digits, and Python reads whole numbers of 4,300.
LONGEST_NUMBER = 1_000
COMMENT_MARKS = re.compile(r"/\*|\*/")
NAMES = {"'": "string", '"': "string", "r'": "string", 'r"': "string", "`": "quoted name", "/*": "comment"}


def parse(text: str) -> list[Statement]:
    """Return the statements of ``text``, which semicolons separate; none for blank text and comments.

    Positions refer to the whole text.  Raises SqlSyntaxError for text that is not valid, and UnsupportedError for
    clauses of Spark that are not supported.
    """
    return [_statement(tokens, text) for tokens in _whole_statements(text)]


def is_complete(text: str) -> bool:
    """Return whether a shell should run ``text`` now: it ends with a semicolon, or contains no statement.

    Trailing comments do not count.  Returns False if a string, a quoted name or a comment is still open.
    """
    if _unclosed(text):
        return False
    tokens = _tokenize(text)
    if not tokens:
        return True
    *_, last = _whole_statements(text) or [[]]
    return tokens[-1].token_type == TokenType.SEMICOLON and not is_open_set(last)


def _statement(tokens: list[Token], text: str) -> Statement:
    def parse_one(own: list[Token]) -> Statement:
        return StatementParser(dialect=DIALECT).statement_of(own, text)

    return statement_set(tokens, text, parse_one) if starts_set(tokens) else parse_one(without_semicolon(tokens))


def _whole_statements(text: str) -> list[list[Token]]:
    """Return the tokens of each statement; those of a statement set have semicolons between them."""
    statements: list[list[Token]] = []
    for tokens in split_statements(_tokenize(text)):
        if statements and is_open_set(statements[-1]):
            statements[-1] += tokens
        else:
            statements.append(tokens)
    return statements


def _tokenize(text: str) -> list[Token]:
    open_part = _unclosed(text)
    if open_part:
        opener, offset = open_part
        raise SqlSyntaxError(
            f"the {NAMES[opener]} that starts here is not closed",
            detail=excerpt(text, offset, offset + len(opener)),
            hint=f"close it with {'*/' if opener == '/*' else opener[-1]}",
            position=locate(text, offset),
        )
    try:
        tokens = DIALECT.tokenize(_without_comments(text))
    except TokenError as error:
        # sqlglot quotes 50 characters on both sides of the failure.
        begin, end = error.start or 0, error.end or 0
        offset = min(begin + 50 if begin else max(end - 50, 0), len(text))
        raise SqlSyntaxError(
            "the text cannot be read as SQL from here on",
            detail=excerpt(text, offset, offset + 1),
            position=locate(text, offset),
        ) from None
    anchor(tokens, text)
    for token, following in pairwise(tokens):
        if token.token_type == TokenType.WINDOW and following.token_type == TokenType.L_PAREN:
            token.token_type = TokenType.VAR  # Spark's function window(…), not the clause WINDOW
    for token in tokens:
        if token.token_type == TokenType.NUMBER and len(token.text) > LONGEST_NUMBER:
            raise SqlSyntaxError(
                f"a number has {len(token.text):,} digits",
                detail=excerpt(text, token.start, token.start + 1),
                hint=f"numbers have at most {LONGEST_NUMBER:,} digits",
                position=token_position(token),
            )
    return tokens


def _unclosed(text: str) -> tuple[str, int] | None:
    """Return the quote or comment that is still open at the end of ``text``, and its offset."""
    return next(((opener, start) for opener, start, end in _parts(text) if end is None), None)


def _without_comments(text: str) -> str:
    """Return the text with spaces for its comments: to sqlglot GROUP /* … */ BY is no GROUP BY.  Hints stay."""
    kept, at = [], 0
    for opener, start, end in _parts(text):
        if end is not None and opener in ("--", "/*") and not text.startswith("/*+", start):
            kept += [text[at:start], " " * (end - start)]
            at = end
    return "".join([*kept, text[at:]])


def _parts(text: str) -> Iterator[tuple[str, int, int | None]]:
    """Yield each comment, string and quoted name: what opens it, its offset, and the offset after it (None: open)."""
    at = 0
    while opening := OPENERS.search(text, at):
        opener = opening.group().lower()
        end: int | None = opening.end()
        if opener.startswith("--"):
            opener = "--"
        elif opener == "/*":
            end = _comment_end(text, opening.end())
        else:
            end = _quote_end(text, opener, opening.end())
        yield opener, opening.start(), end
        if end is None:
            return
        at = end


def _quote_end(text: str, opener: str, start: int) -> int | None:
    closing = CLOSERS[opener].match(text, start)
    return closing.end() if closing else None


def _comment_end(text: str, start: int) -> int | None:
    """Return the end of a comment, in which comments may nest."""
    depth = 1
    for mark in COMMENT_MARKS.finditer(text, start):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end()
    return None
