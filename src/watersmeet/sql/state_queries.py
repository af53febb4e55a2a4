"""Queries over ``state('query')``: which relations they read, and their text for DuckDB.

Such a query may use everything in DuckDB's SELECT, so it is not parsed here.  ``state(…)`` is found among the tokens
and replaced in the text.  Every other character stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.expressions.positions import token_position
from watersmeet.sql.failures import Failures, is_word
from watersmeet.sql.statements import StateQuery, StateRelation

_T = TokenType
_STATE = "state"
_BEFORE = (_T.FROM, _T.JOIN)
_BETWEEN = (*_BEFORE, _T.COMMA, _T.L_PAREN)
DEFAULT_RELATION = "segments"


def find_state(tokens: Sequence[Token], script: str) -> StateQuery | None:
    """Return the query in the tokens (to the end of a statement), or None if no FROM or JOIN has ``state(``.

    Raises ``SqlSyntaxError`` for ``state(`` without a query's name in quotes.
    """
    if not any(_opens(tokens, index, _BEFORE) for index in range(len(tokens))):
        return None
    failures = Failures(script, tokens)
    found = [_relation(tokens, index, failures) for index in range(len(tokens)) if _opens(tokens, index, _BETWEEN)]
    return StateQuery(script, tokens[0].start, tokens[-1].end + 1, tuple(found), token_position(tokens[0]))


def duckdb_text(query: StateQuery, tables: Mapping[tuple[str, str], str]) -> str:
    """Return the query over ``tables``, which are named by query and relation."""
    text, at = "", query.start
    for each in query.relations:
        text += query.script[at : each.start] + tables[each.query, each.relation]
        at = each.end
    return text + query.script[at : query.end]


def _opens(tokens: Sequence[Token], index: int, before: Sequence[TokenType]) -> bool:
    """Return whether ``state (`` begins at a token, behind one of these."""
    return (
        0 < index < len(tokens) - 1
        and tokens[index - 1].token_type in before
        and is_word(tokens[index])
        and tokens[index].text.lower() == _STATE
        and tokens[index + 1].token_type == _T.L_PAREN
    )


def _relation(tokens: Sequence[Token], index: int, failures: Failures) -> StateRelation:
    query = _string(tokens, index + 2, failures, "a query's name in quotes", after="state (")
    relation, at = DEFAULT_RELATION, index + 3
    if at < len(tokens) and tokens[at].token_type == _T.COMMA:
        relation = _string(tokens, at + 1, failures, "a relation's name in quotes", after=f"state ('{query}',").lower()
        at += 2
    if at >= len(tokens) or tokens[at].token_type != _T.R_PAREN:
        raise failures.expected(tokens[at] if at < len(tokens) else None, ["')'"], after=f"state ('{query}'")
    start = tokens[index]
    return StateRelation(query, relation, start.start, tokens[at].end + 1, token_position(start))


def _string(tokens: Sequence[Token], index: int, failures: Failures, what: str, *, after: str) -> str:
    token = tokens[index] if index < len(tokens) else None
    if token is None or token.token_type != _T.STRING:
        raise failures.expected(token, [what], after=after)
    return str(token.text)
