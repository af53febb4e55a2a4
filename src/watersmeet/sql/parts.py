"""The parts that statements share: queries with EMIT and SETTINGS, lists of names, ``key = value`` pairs."""

from __future__ import annotations

from contextlib import suppress

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.errors import Position
from watersmeet.expressions.positions import token_position
from watersmeet.expressions.times import interval_micros
from watersmeet.kernels.api import EmitMode
from watersmeet.sql.clauses import BOUNDS, clauses_after, refuse_foreign_clauses, refuse_lost_parts
from watersmeet.sql.column_names import take_column_names
from watersmeet.sql.dialect import QueryParser
from watersmeet.sql.failures import is_word, nearest_keyword
from watersmeet.sql.named_windows import fill_windows
from watersmeet.sql.statements import Query, SettingValue

QUERY_STARTS = (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN)
VALUE_CHOICES = ["a string", "a number", "TRUE", "FALSE"]
#: How deeply the parts of an expression may be nested, or how long ``a + b + …`` may be: what writes SQL from a tree
#: calls itself some times for each level.  Chains of AND and of OR have no limit.
_MOST_LEVELS = 150
_BEFORE_JOIN = {"INNER", "LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI", "CROSS", "ASOF"}


class PartsParser(QueryParser):
    """Parses parts of statements.  Each method starts at the current token and consumes what it parses."""

    def query(self) -> Query:
        """Parse a query with its EMIT and SETTINGS, up to the end of the statement."""
        start = self._curr
        if start.token_type not in QUERY_STARTS:
            raise self.unexpected(["SELECT", "WITH", "'('"])
        tree = super()._parse_statement()
        while isinstance(tree, exp.Subquery) and tree.is_wrapper:
            tree = tree.this
        if isinstance(tree, exp.Subquery):
            raise self.failures.unsupported("a query in parentheses takes no further clauses", start)
        if not isinstance(tree, (exp.Select, exp.SetOperation)):
            raise self.failures.syntax(f"found {self.failures.found(start)}, expected a query", start)
        emit, emit_token = None, None
        every: str | None = None
        settings: dict[str, SettingValue] | None = None
        settings_positions: dict[str, Position] = {}
        while True:
            token = self._curr
            if self.take("EMIT"):
                self.once("EMIT", token, emit)
                emit_token, every = token, self._every()
                emit = self._emit_mode() if every is None else EmitMode.CHANGELOG
            elif self.take("SETTINGS"):
                self.once("SETTINGS", token, settings)
                settings = self.settings(settings_positions)
            else:
                break
        if self._curr:
            self._reject_rest(tree, emit is not None, settings is not None)
        if every is not None:
            if "trigger" in (settings or {}):
                raise self.failures.syntax("EMIT EVERY sets the trigger; SETTINGS has it too", emit_token)
            settings = {**(settings or {}), "trigger": every}
        self.limit_depth(tree, start)
        refuse_foreign_clauses(tree, self.failures)
        refuse_lost_parts(tree, self.failures)
        take_column_names(tree)
        fill_windows(tree)
        return Query(
            select=tree,
            emit=emit,
            emit_position=token_position(emit_token) if emit_token else None,
            settings=settings or {},
            position=token_position(start),
            settings_positions=settings_positions,
        )

    def limit_depth(self, tree: exp.Expr, start: Token) -> None:
        """Raise SqlSyntaxError for a tree, which begins at ``start``, that is nested too deeply to be handled."""
        left = [(tree, 0)]
        while left:
            node, depth = left.pop()
            if depth > _MOST_LEVELS:
                raise self.failures.syntax(
                    f"an expression is nested more than {_MOST_LEVELS} levels deep, or as long",
                    start,
                    hint="a chain such as a + b + … counts a level for each sign; concat() and IN take many arguments",
                )
            for part in node.iter_expressions():
                is_chain = isinstance(node, exp.And | exp.Or) and type(part) is type(node)
                left.append((part, depth if is_chain else depth + 1))

    def _every(self) -> str | None:
        """Parse EVERY and its interval; return it as a duration, or None if another mode follows."""
        if not self.take("EVERY"):
            return None
        start = self._curr
        micros = interval_micros(self.clause_interval("EMIT EVERY"))
        if micros < 1_000:
            raise self.failures.syntax("EMIT EVERY takes an interval of a millisecond or more", start)
        return f"{micros // 1_000} milliseconds"

    def _emit_mode(self) -> EmitMode:
        for mode in EmitMode:
            if self.take(mode.name):
                return mode
        raise self.unexpected([*(mode.name for mode in EmitMode), "EVERY"], after="EMIT")

    def _reject_rest(self, tree: exp.Expr, has_emit: bool, has_settings: bool) -> None:
        """Raise the error for the first token after the query: what can follow, and what was probably meant."""
        choices = [] if has_emit or has_settings else clauses_after(tree)
        choices += [] if has_emit else ["EMIT"]
        choices += [] if has_settings else ["SETTINGS"]
        choices.append("the end of the statement")
        hint = None
        if any(map(self.at, BOUNDS)):
            hint = f"{self._curr.text.upper()} follows the ON condition of its join, before WHERE"
        elif has_emit or has_settings:
            hint = "EMIT and SETTINGS belong at the end of the query"
        elif self._curr.text.upper() in _BEFORE_JOIN:
            rest = self._tokens[self._index :]
            word = next((token for token in rest if token.text.upper() not in _BEFORE_JOIN), self._curr)
            hint = f"did you mean JOIN instead of {word.text}?" if nearest_keyword(word.text, ["JOIN"]) else None
        elif not (is_word(self._curr) and nearest_keyword(self._curr.text, choices)) and is_word(self._prev):
            # The parser took a misspelled keyword for an alias: FROM orders WHER x = 1.
            keyword = nearest_keyword(self._prev.text, choices)
            hint = f"did you mean {keyword} instead of {self._prev.text}?" if keyword else None
        raise self.unexpected(choices, hint=hint)

    def settings(self, positions: dict[str, Position]) -> dict[str, SettingValue]:
        """Parse the pairs after SETTINGS."""
        return self.pairs(positions, "SETTINGS")

    def pairs(self, positions: dict[str, Position], clause: str) -> dict[str, SettingValue]:
        """Parse one or more ``key = value`` pairs, and store the position of each key in ``positions``."""
        pairs: dict[str, SettingValue] = {}
        while not pairs or self._match(TokenType.COMMA):
            token = self._curr
            key = self._key("','" if pairs else clause)
            self.once(key, token, pairs.get(key))
            self.require(TokenType.EQ, "'='", after=key)
            pairs[key] = self._value(key)
            positions[key] = token_position(token)
        return pairs

    def _key(self, after: str) -> str:
        token = self._curr
        if token.token_type == TokenType.STRING:
            self._advance()
            return token.text
        parts: list[str] = []
        while not parts or self._match(TokenType.DOT):
            part = self._curr
            if not (is_word(part) or part.token_type == TokenType.IDENTIFIER):
                raise self.unexpected(["a name"], after="'.'" if parts else after)
            self._advance()
            parts.append(part.text)
        return ".".join(parts)

    def _value(self, key: str) -> SettingValue:
        token = self._curr
        if self._match(TokenType.STRING):
            return token.text
        if self._match(TokenType.TRUE):
            return True
        if self._match(TokenType.FALSE):
            return False
        sign = -1 if self._match(TokenType.DASH) else 1
        number = self._curr
        if self._match(TokenType.NUMBER):
            with suppress(ValueError):  # 1e is a number for the tokenizer
                return sign * (int(number.text) if number.text.isdigit() else float(number.text))
            self._retreat(self._index - 1)
        hint = f"write '{token.text}' in quotes" if is_word(token) else None
        raise self.unexpected(VALUE_CHOICES, after=f"{key} =", hint=hint)

    def names(self, after: str, positions: dict[str, Position] | None = None) -> tuple[str, ...]:
        """Parse column names up to the closing parenthesis; the opening one is already consumed.

        Stores the position of each name in ``positions``; of a repeated name, the last one.
        """
        names: list[str] = []
        while not names or self._match(TokenType.COMMA):
            token = self._curr
            names.append(self.name("a column name", "','" if names else after))
            if positions is not None:
                positions[names[-1]] = token_position(token)
        self.require(TokenType.R_PAREN, "')'", after=names[-1])
        return tuple(names)

    def name(self, what: str, after: str | None) -> str:
        """Parse one name, without dots, in backquotes or not; ``what`` names it in errors."""
        token = self._curr
        if token.token_type == TokenType.IDENTIFIER or (is_word(token) and token.token_type in self.ID_VAR_TOKENS):
            self._advance()
            return token.text
        hint = f"{token.text} is a keyword; to use it as a name, write `{token.text}`" if is_word(token) else None
        raise self.unexpected([what], after=after, hint=hint)

    def once(self, clause: str, token: Token, before: object | None) -> None:
        """Raise an error at ``token`` if ``clause`` has already appeared: ``before`` is what it held, or None."""
        if before is not None:
            raise self.failures.syntax(f"{clause} appears twice", token)
