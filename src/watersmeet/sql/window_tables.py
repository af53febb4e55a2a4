"""TUMBLE, HOP, CUMULATE and SESSION in FROM, as Flink, Spark and RisingWave write them.

    [TABLE (] TUMBLE ( relation , time , INTERVAL n UNIT [, INTERVAL n UNIT] ) [)]      HOP, CUMULATE: one length more

    [TABLE (] SESSION ( relation [PARTITION BY expressions] , DESCRIPTOR ( name ) , INTERVAL n UNIT ) [)]

    relation := [TABLE] name | [TABLE] ( select )        time := name | DESCRIPTOR ( name )

Over an event time that counts rows, lengths are numbers.  Arguments may be named, as in ``SIZE => INTERVAL '1' HOUR``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.expressions.nodes import WINDOW_TABLES, WindowTable
from watersmeet.expressions.positions import place

if TYPE_CHECKING:
    from watersmeet.sql.dialect import QueryParser

_ARGUMENTS = {"DATA", "TIMECOL", "SIZE", "SLIDE", "STEP", "OFFSET", "GAP"}


def at_window_table(parser: QueryParser) -> bool:
    """Whether a function that gives rows their windows comes next, in TABLE(…) or not."""
    return _called(parser, 0) or (_opens(parser, 0, "TABLE") and _called(parser, 2))


def parse_window_table(parser: QueryParser) -> WindowTable:
    """Parse the function and its arguments, without an alias; raises ``SqlSyntaxError``."""
    start = parser._curr
    is_wrapped = parser.take("TABLE")
    if is_wrapped:
        parser._advance()
    name = parser._curr.text.upper()
    parser._advance(2)
    relation = _relation(parser, name)
    partition = _partition(parser) if name == "SESSION" else []
    parser.require(TokenType.COMMA, "',' and the event time", after=f"the relation of {name}")
    time = _time(parser, name)
    lengths: list[exp.Expr] = []
    wanted = WINDOW_TABLES[name]
    while len(lengths) < len(wanted) and parser._match(TokenType.COMMA):
        lengths.append(_length(parser, f"the {wanted[len(lengths)]} of {name}"))
    if len(lengths) < max(len(wanted) - 1, 1):
        raise parser.unexpected([f"',' and the {wanted[len(lengths)]} of {name}"])
    for _ in range(1 + is_wrapped):
        parser.require(TokenType.R_PAREN, "')'", after=f"the arguments of {name}")
    found = WindowTable(this=relation, name=name, time=time, expressions=lengths, partition_by=partition)
    place(found, start)
    return found


def _called(parser: QueryParser, ahead: int) -> bool:
    return any(_opens(parser, ahead, name) for name in WINDOW_TABLES)


def _opens(parser: QueryParser, ahead: int, word: str) -> bool:
    first, second = (
        parser._tokens[index] if index < len(parser._tokens) else None
        for index in (parser._index + ahead, parser._index + ahead + 1)
    )
    return (
        first is not None
        and second is not None
        and first.text.upper() == word
        and second.token_type is TokenType.L_PAREN
    )


def _skip_name(parser: QueryParser) -> None:
    """Skip the name of an argument, as in ``SIZE =>``."""
    is_named = parser._curr and parser._next and parser._next.token_type is TokenType.FARROW
    if is_named and parser._curr.text.upper() in _ARGUMENTS:
        parser._advance(2)


def _relation(parser: QueryParser, name: str) -> exp.Expr:
    _skip_name(parser)
    parser.take("TABLE")
    relation = parser._parse_table(schema=False, alias_tokens=set())
    if relation is None:
        raise parser.unexpected(["the name of a stream", "'('"], after=f"{name} (")
    return relation


def _partition(parser: QueryParser) -> list[exp.Expr]:
    """Parse PARTITION BY after the relation of SESSION, up to the comma before DESCRIPTOR."""
    if not parser._match(TokenType.PARTITION_BY):
        return []
    found: list[exp.Expr] = []
    while not found or (not _is_time(parser._next) and parser._match(TokenType.COMMA)):
        expression = parser._parse_disjunction()
        if expression is None:
            raise parser.unexpected(["an expression"], after="PARTITION BY")
        found.append(expression)
        if not parser._curr or parser._curr.token_type is not TokenType.COMMA:
            break
    return found


def _is_time(token: Token | None) -> bool:
    return token is not None and token.text.upper() in ("DESCRIPTOR", "TIMECOL")


def _time(parser: QueryParser, name: str) -> exp.Identifier:
    _skip_name(parser)
    is_descriptor = parser.take("DESCRIPTOR")
    if is_descriptor:
        parser.require(TokenType.L_PAREN, "'('", after="DESCRIPTOR")
    start = parser._curr
    column = parser._parse_id_var(any_token=False)
    if not isinstance(column, exp.Identifier):
        raise parser.unexpected(["an event-time column", "DESCRIPTOR"], after=f"the relation of {name},")
    place(column, start)
    if is_descriptor:
        parser.require(TokenType.R_PAREN, "')'", after=f"DESCRIPTOR ({column.name}")
    return column


def _length(parser: QueryParser, what: str) -> exp.Expr:
    _skip_name(parser)
    start = parser._curr
    is_negative = bool(start and start.token_type is TokenType.DASH)
    written = parser._next if is_negative else start
    if start and written and written.token_type is TokenType.NUMBER:
        parser._advance(1 + is_negative)
        number = exp.Literal(this=f"{'-' * is_negative}{written.text}", is_string=False)
        place(number, start)
        return number
    return parser.clause_interval(what, "a number of rows")
