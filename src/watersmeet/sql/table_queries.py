"""Queries over stored rows: which ``table(name)`` they read, and their text for Spark.

Such a query may use everything in Spark SQL, so it is not parsed here.  This module finds ``table(name)`` and empty
``count()`` among the tokens and replaces them in the text.  Every other character stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.columns import RECORD_COLUMNS, TP_TIME, spark_name
from watersmeet.errors import Position, UnsupportedError
from watersmeet.expressions.nodes import WINDOW_TABLES
from watersmeet.expressions.positions import excerpt, line_starts, locate, token_position
from watersmeet.sql.dialect import QueryParser
from watersmeet.sql.failures import Failures, is_word
from watersmeet.sql.statements import HistoricalQuery, Relation

_T = TokenType
_RELATION_FOLLOWS = (_T.FROM, _T.JOIN, _T.COMMA, _T.L_PAREN)
_AFTER_FROM = {
    _T.SELECT, _T.WHERE, _T.GROUP_BY, _T.HAVING, _T.ORDER_BY, _T.SORT_BY, _T.CLUSTER_BY, _T.DISTRIBUTE_BY, _T.LIMIT,
    _T.OFFSET, _T.WINDOW, _T.QUALIFY, _T.UNION, _T.EXCEPT, _T.INTERSECT,
}  # fmt: skip
# A relation that one of these follows has no alias.
_NO_ALIAS = _AFTER_FROM | {
    _T.COMMA, _T.R_PAREN, _T.JOIN, _T.INNER, _T.LEFT, _T.RIGHT, _T.FULL, _T.CROSS, _T.NATURAL, _T.SEMI, _T.ANTI,
    _T.ON, _T.USING,
}  # fmt: skip
_CHANGING = (_T.INSERT, _T.UPDATE, _T.DELETE, _T.MERGE)
_JOIN_HINT = "join stored rows by plain conditions: ON a.id = b.id AND b.ts BETWEEN a.ts AND …"
_AT_ONCE = "leave it out: a query over stored rows runs once, like any query of Spark"
# Clauses for streams: their name, their first words, which start no clause of Spark after FROM, and a hint.
_OF_STREAMS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("EMIT", ("EMIT", "FINAL"), _AT_ONCE),
    ("EMIT", ("EMIT", "CHANGELOG"), _AT_ONCE),
    ("SETTINGS", ("SETTINGS", "*", "="), _AT_ONCE),
    ("WITHIN", ("WITHIN", "INTERVAL"), _JOIN_HINT),
    ("WITHIN", ("WITHIN", "(", "INTERVAL"), _JOIN_HINT),
    ("GRACE PERIOD", ("GRACE", "PERIOD"), _JOIN_HINT),
    ("ALLOWED LATENESS", ("ALLOWED", "LATENESS"), _JOIN_HINT),
    ("ASOF JOIN", ("ASOF", "JOIN"), _JOIN_HINT),
    ("MATCH_CONDITION", ("MATCH_CONDITION", "("), _JOIN_HINT),
    ("FOR SYSTEM_TIME AS OF", ("FOR", "SYSTEM_TIME"), "only streams can be joined this way: leave out table( )"),
)


# -- finding ---------------------------------------------------------------------------------------------------------


def find_historical(tokens: Sequence[Token], script: str) -> HistoricalQuery | None:
    """Return the query in the tokens (anchored, to the end of a statement), or None if it reads no ``table(name)``.

    Raises SqlSyntaxError for ``table(`` without a name, and UnsupportedError for clauses that only streams have and
    for statements that change data.
    """
    if not any(_is(tokens, index, _T.TABLE, _T.L_PAREN) for index in range(len(tokens))):
        return None
    scan = _Scan(tokens, Failures(script, tokens))
    if not scan.tables:
        return None
    if scan.refused is not None:
        raise scan.refused
    return HistoricalQuery(
        script=script,
        start=tokens[0].start,
        end=tokens[-1].end + 1,
        tables=tuple(scan.tables),
        others=tuple(each for each in scan.others if each.name.lower() not in scan.ctes),
        empty_counts=tuple(
            tokens[index + 2].start
            for index, token in enumerate(tokens)
            if _is(tokens, index + 1, _T.L_PAREN, _T.R_PAREN)
            and is_word(token)
            and token.text.lower() == "count"
            and not (index and tokens[index - 1].token_type == _T.DOT)
        ),
        hidden=frozenset(token.text.lower() for token in tokens if _is_name(token)) & {TP_TIME, *RECORD_COLUMNS},
        position=token_position(tokens[0]),
    )


@dataclass(slots=True)
class _Level:
    """The state of the scan inside one pair of parentheses; ``opener`` is the index of the opening one."""

    opener: int
    lists_relations: bool = False
    selects: bool = False
    has_from: bool = False


@dataclass(slots=True)
class _Scan:
    """One pass over the tokens that tracks parentheses, and the lists of relations after FROM."""

    tokens: Sequence[Token]
    failures: Failures
    tables: list[Relation] = field(default_factory=list)
    others: list[Relation] = field(default_factory=list)
    ctes: set[str] = field(default_factory=set)
    refused: UnsupportedError | None = None
    """The error to raise if this turns out to be a query over stored rows, which only its end shows."""

    def __post_init__(self) -> None:
        levels = [_Level(-1)]
        for index, token in enumerate(self.tokens):
            level = levels[-1]
            at_relation = self._at_relation(index, level)
            kind = token.token_type
            if kind == _T.L_PAREN:
                levels.append(_Level(index, lists_relations=at_relation))
            elif kind == _T.R_PAREN:
                self._close(index, levels)
            elif at_relation and _is(self.tokens, index, _T.TABLE, _T.L_PAREN):
                self._take_table(index)
            elif at_relation and _is_name(token) and not _is(self.tokens, index + 1, _T.DOT):
                self._take_plain(index)
            self._refuse(index, level)
            self._follow(index, levels[-1])

    def _at_relation(self, index: int, level: _Level) -> bool:
        """Return whether the token is in a place where FROM and JOIN name a relation."""
        if index == 0 or not level.lists_relations:
            return False
        before = self.tokens[index - 1].token_type
        return before in _RELATION_FOLLOWS and (before != _T.L_PAREN or level.opener == index - 1)

    def _close(self, index: int, levels: list[_Level]) -> None:
        closed = levels.pop() if len(levels) > 1 else levels[0]
        if _is(self.tokens, index + 1, _T.ALIAS, _T.L_PAREN):
            self._note_cte(closed.opener - 1)

    def _note_cte(self, index: int) -> None:
        """Add the name of a CTE: the one before ``AS (``, or before the column names that precede it."""
        if index < 1 or not _is_name(self.tokens[index]):
            return
        if self.tokens[index - 1].token_type in (_T.WITH, _T.RECURSIVE, _T.COMMA):
            self.ctes.add(self.tokens[index].text.lower())

    def _follow(self, index: int, level: _Level) -> None:
        """Update the level: whether the next token continues a list of relations."""
        kind = self.tokens[index].token_type
        before = self.tokens[index - 1].token_type if index else None
        if kind == _T.SELECT:
            level.selects, level.has_from, level.lists_relations = True, False, False
        elif kind == _T.FROM and level.selects and before != _T.DISTINCT:  # not that of EXTRACT, IS DISTINCT FROM
            level.has_from = level.lists_relations = True
        elif kind in _AFTER_FROM or _is(self.tokens, index, _T.LATERAL, _T.VIEW):
            level.lists_relations = False
        elif _is(self.tokens, index + 1, _T.ALIAS, _T.L_PAREN):
            self._note_cte(index)

    def _take_table(self, index: int) -> None:
        start, name, end = self.tokens[index], *(_token(self.tokens, index + step) for step in (2, 3))
        if name is not None and name.text.upper() in WINDOW_TABLES and _is(self.tokens, index + 3, _T.L_PAREN):
            return  # TABLE(TUMBLE(…)): rows of a running stream
        if name is None or not _is_name(name):
            raise self.failures.expected(name, ["a stream name"], after="table (")
        if end is None or end.token_type != _T.R_PAREN:
            raise self.failures.expected(end, ["')'"], after=f"table ({name.text}")
        following = _token(self.tokens, index + 4)
        takes_alias = following is None or following.token_type in _NO_ALIAS
        self.tables.append(Relation(name.text, start.start, end.end + 1, token_position(start), takes_alias))

    def _take_plain(self, index: int) -> None:
        name = self.tokens[index]
        if not _is(self.tokens, index + 1, _T.L_PAREN):
            self.others.append(Relation(name.text, name.start, name.end + 1, token_position(name)))

    def _refuse(self, index: int, level: _Level) -> None:
        if self.refused is not None:
            return
        token = self.tokens[index]
        if level.has_from:
            for clause, words, hint in _OF_STREAMS:
                if self._reads(index, words):
                    self.refused = self.failures.unsupported(
                        f"{clause} cannot be used with table(…), which reads the rows stored now", token, hint=hint
                    )
                    return
        if level.opener == -1 and not level.selects and token.token_type in _CHANGING:
            self.refused = self.failures.unsupported(
                f"a query over table(…) cannot {token.text.upper()}",
                token,
                hint="write INSERT INTO stream WITH … SELECT …",
            )

    def _reads(self, index: int, words: Sequence[str]) -> bool:
        """Return whether the tokens from ``index`` on are these words; ``*`` matches any name."""
        found = self.tokens[index : index + len(words)]
        return len(found) == len(words) and all(
            _is_name(token) if word == "*" else token.text.upper() == word and token.token_type != _T.IDENTIFIER
            for token, word in zip(found, words, strict=True)
        )


def _token(tokens: Sequence[Token], index: int) -> Token | None:
    return tokens[index] if index < len(tokens) else None


def _is(tokens: Sequence[Token], index: int, *kinds: TokenType) -> bool:
    """Return whether the tokens from ``index`` on are of these kinds."""
    found = tokens[index : index + len(kinds)]
    return [token.token_type for token in found] == list(kinds)


def _is_name(token: Token) -> bool:
    return token.token_type == _T.IDENTIFIER or (is_word(token) and token.token_type in QueryParser.ID_VAR_TOKENS)


# -- the text for Spark ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SparkText:
    """A query's text for Spark; ``edits`` are the offsets of each replaced part in the text and in the script."""

    text: str
    query: HistoricalQuery
    edits: tuple[tuple[int, int, int, int], ...]

    def place(self, line: int, column: int) -> tuple[Position, str]:
        """Map a place in this text (line from 1, column from 0) to its position in the script and an excerpt."""
        starts = line_starts(self.text)
        offset = min(starts[min(line, len(starts)) - 1] + column, len(self.text))
        shift = self.query.start
        for start, end, script_start, script_end in self.edits:
            if offset >= end:
                shift = script_end - end
            elif offset >= start:
                shift = script_start - offset
        found = offset + shift
        return locate(self.query.script, found), excerpt(self.query.script, found, found + 1)


def spark_text(query: HistoricalQuery, views: Mapping[str, str]) -> SparkText:
    """Return the query over ``views`` (by the stream's lower-case name); the stream's name becomes a missing alias."""
    parts = [(each.start, each.end, _view(each, views[each.name.lower()])) for each in query.tables]
    parts += [(offset, offset, "*") for offset in query.empty_counts]
    text, edits, at = "", [], query.start
    for start, end, new in sorted(parts):
        text += query.script[at:start]
        edits.append((len(text), len(text) + len(new), start, end))
        text, at = text + new, end
    return SparkText(text + query.script[at : query.end], query, tuple(edits))


def _view(table: Relation, view: str) -> str:
    return f"{spark_name(view)} AS {spark_name(table.name)}" if table.takes_alias else spark_name(view)
