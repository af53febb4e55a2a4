"""Statement sets: queries that run as one.

set := [EXPLAIN] EXECUTE STATEMENT SET BEGIN insert ';' {insert ';'} END
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.expressions.positions import token_position
from watersmeet.sql.failures import Failures, is_word
from watersmeet.sql.statements import Explain, InsertSelect, Statement, StatementSet

_START = ("EXECUTE", "STATEMENT", "SET", "BEGIN")


def split_statements(tokens: Iterable[Token]) -> list[list[Token]]:
    """Return the tokens of each statement that semicolons end, with its semicolon; empty ones are left out."""
    statements: list[list[Token]] = [[]]
    for token in tokens:
        statements[-1].append(token)
        if token.token_type == TokenType.SEMICOLON:
            statements.append([])
    return [each for each in statements if without_semicolon(each)]


def without_semicolon(tokens: list[Token]) -> list[Token]:
    """Return the tokens of a statement without the semicolon that ends it."""
    return tokens[:-1] if tokens and tokens[-1].token_type == TokenType.SEMICOLON else tokens


def is_open_set(tokens: Sequence[Token]) -> bool:
    """Return whether a statement is the beginning of a set, whose END is still to come."""
    own = _explained(tokens)
    if _words(own[: len(_START)]) != _START:
        return False
    *_, last = split_statements(own[len(_START) :]) or [[]]
    return _words(without_semicolon(last)) != ("END",) and _stray_end(last) is None


def starts_set(tokens: Sequence[Token]) -> bool:
    """Return whether a statement is a set, or the beginning of one."""
    return _words(_explained(tokens)[:1]) == _START[:1]


def statement_set(tokens: list[Token], text: str, parse: Callable[[list[Token]], Statement]) -> StatementSet | Explain:
    """Return the statement set in ``tokens``, which ``starts_set``; ``parse`` parses one of its statements.

    Raises ``SqlSyntaxError``, and ``UnsupportedError`` for statements that cannot be in a set.
    """
    failures, own = Failures(text, tokens), _explained(tokens)
    for number, word in enumerate(_START):
        if _words(own[number : number + 1]) != (word,):
            at = own[number] if number < len(own) else None
            raise failures.expected(at, [word], after=" ".join(_START[:number]))
    *inner, last = [without_semicolon(each) for each in split_statements(own[len(_START) :])] or [[]]
    if (stray := _stray_end(last)) is not None:
        raise failures.expected(stray, ["';'"], after="the last statement of the set")
    if _words(last) != ("END",):
        hint = "each statement of a set ends with a semicolon, and the set with END"
        raise failures.expected(None, ["END"], after="the statements of the set", hint=hint)
    if not inner:
        raise failures.expected(last[0], ["INSERT INTO"], after="BEGIN")
    inserts: list[InsertSelect] = []
    for each in inner:
        statement = parse(each)
        if not isinstance(statement, InsertSelect):
            raise failures.unsupported(
                "a statement set consists of INSERT INTO ... SELECT", each[0], hint="put other statements before it"
            )
        if any(other.source == statement.source for other in inserts):
            # they would have one name, and a sink would take the second's batches for repeats
            raise failures.unsupported("this statement is in the set already", each[0])
        inserts.append(statement)
    found = StatementSet(tuple(inserts), token_position(own[0]), text[own[0].start : last[0].end + 1])
    if own is tokens:
        return found
    return Explain(None, found, token_position(tokens[0]), text[tokens[0].start : last[0].end + 1])


def _explained(tokens: Sequence[Token]) -> Sequence[Token]:
    """The tokens after EXPLAIN, if that is the first of them."""
    return tokens[1:] if _words(tokens[:1]) == ("EXPLAIN",) else tokens


def _words(tokens: Sequence[Token]) -> tuple[str, ...]:
    """The tokens in capitals; those that are no bare words are empty."""
    return tuple(token.text.upper() if is_word(token) else "" for token in tokens)


def _stray_end(statement: list[Token]) -> Token | None:
    """The END after a statement that lacks its semicolon: it ends no CASE."""
    words = _words(without_semicolon(statement))
    if len(words) > 1 and words[-1] == "END" and words.count("END") > words.count("CASE"):
        return without_semicolon(statement)[-1]
    return None
