"""The SQL of queries: sqlglot's Spark dialect and the clauses for streams.

These clauses extend Spark's SELECT:

    JOIN stream [alias] ON condition
      [WITHIN INTERVAL n UNIT | WITHIN (INTERVAL n UNIT, INTERVAL n UNIT)]
      [GRACE PERIOD INTERVAL n UNIT] [ALLOWED LATENESS INTERVAL n UNIT]
    JOIN stream [alias] FOR SYSTEM_TIME AS OF time [VERSIONED ON column] [alias] ON condition
    [LEFT] ASOF JOIN stream [alias] MATCH_CONDITION (condition) ON condition
    FROM TUMBLE (stream, time, INTERVAL n UNIT)                                (window_tables.py)

Of LATERAL VIEW, LATERAL and UNNEST they have what Spark and the standard have.

A JOIN without a condition is an error, as is an INTERVAL with an unknown unit.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.expressions.nodes import StreamJoin, SystemTime, Within
from watersmeet.expressions.positions import place
from watersmeet.sql.clauses import BOUNDS
from watersmeet.sql.interval_parser import IntervalParser
from watersmeet.sql.window_tables import at_window_table, parse_window_table


class QueryParser(IntervalParser):
    """Parses queries."""

    ADD_JOIN_ON_TRUE = False
    VERSION_PHRASES: ClassVar[dict[tuple[str, ...], str]] = {("FOR", "SYSTEM_TIME"): "TIMESTAMP"}

    # Tables and joins

    def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        start = self._curr
        if at_window_table(self):
            table: exp.Expr | None = exp.Table(this=parse_window_table(self), alias=self._parse_table_alias())
        else:
            table = super()._parse_table(*args, **kwargs)
        if table is None:
            return None
        place(table, start)
        if self.at("FOR", "SYSTEM_TIME") and not table.args.get("version"):
            table.set("version", self._parse_version())
            if not table.args.get("alias"):
                table.set("alias", self._parse_table_alias(kwargs.get("alias_tokens")))
        if self.at("MATCH_CONDITION"):
            # It belongs to the join, which does not exist yet: _parse_join moves it there.
            table.set("match_condition", self._parse_match_condition())
        return table

    def _parse_lateral(self) -> exp.Lateral | None:
        return self._placed(super()._parse_lateral)  # type: ignore[return-value]

    def _parse_unnest(self, with_alias: bool = True) -> exp.Unnest | None:
        index = self._index
        found = super()._parse_unnest(with_alias)
        own = self._tokens[index : self._index]
        for token, following in pairwise(own if found is not None else ()):
            if token.token_type is TokenType.WITH and following.text.upper() == "OFFSET":
                raise self.failures.unsupported(
                    "WITH OFFSET is not supported", token, hint="WITH ORDINALITY counts elements, from 1"
                )
        if found is not None:
            place(found, own[0])
        return found

    def _parse_version(self) -> exp.Version | None:
        start = self._curr
        if not self.take("FOR", "SYSTEM_TIME"):
            return None
        if not self.take("AS", "OF"):
            raise self.unexpected(["AS OF"], after="FOR SYSTEM_TIME")
        time = self._parse_bitwise()
        if time is None:
            raise self.unexpected(["a time column", "PROCTIME()"], after="AS OF")
        version = SystemTime(this="TIMESTAMP", kind="AS OF", expression=time)
        if self.take("VERSIONED"):
            if not self.take("ON"):
                raise self.unexpected(["ON"], after="VERSIONED")
            column = self._parse_id_var(any_token=False)
            if column is None:
                raise self.unexpected(["a column name"], after="VERSIONED ON")
            if self._curr and self._curr.token_type is TokenType.DOT:
                raise self.failures.syntax(
                    "VERSIONED ON takes the name of a column of that table, without an alias",
                    self._curr,
                    hint=f"leave out {column.name}.",
                )
            version.set("versioned_on", column)
        place(version, start)
        return version

    def _parse_match_condition(self) -> exp.Expr:
        self._advance()
        self.require(TokenType.L_PAREN, "'('", after="MATCH_CONDITION")
        condition = self._parse_disjunction()
        if condition is None:
            raise self.unexpected(["a comparison of two times", "NEAREST(time, time)"], after="MATCH_CONDITION (")
        self._match_r_paren()
        return condition

    def _parse_join_parts(self) -> tuple[Token | None, Token | None, Token | None]:
        # sqlglot only parses ASOF LEFT JOIN.
        side = self._prev if self._next.token_type == TokenType.ASOF and self._match_set(self.JOIN_SIDES) else None
        method, later_side, kind = super()._parse_join_parts()
        return method, side or later_side, kind

    def _parse_join(
        self,
        skip_join_token: bool = False,
        parse_bracket: bool = False,
        alias_tokens: Collection[TokenType] | None = None,
    ) -> exp.Join | None:
        start = self._curr
        plain = super()._parse_join(skip_join_token, parse_bracket, alias_tokens)
        if plain is None:
            if start and self._prev is start:
                raise self.unexpected(["a stream name", "'('"], after="','")
            return None
        join = StreamJoin(**plain.args)
        match = join.this.args.pop("match_condition", None)
        if match is not None:
            join.set("match_condition", match)
        place(join, start)
        self._check_condition(join, start)
        self._parse_bounds(join)
        is_stream_join = any(join.args.get(key) for key in ("within", "grace", "lateness", "match_condition"))
        return join if is_stream_join else exp.Join(**join.args).update_positions(join)

    def _check_condition(self, join: exp.Join, start: Token) -> None:
        if join.method == "NATURAL":
            if join.args.get("on") or join.args.get("using") or join.kind == "CROSS":
                raise self.failures.syntax(
                    "a NATURAL JOIN takes no condition: it joins by the columns that both sides have",
                    start,
                    hint="leave out NATURAL, or ON and USING",
                )
            return
        is_asof = join.method == "ASOF"
        match = join.args.get("match_condition")
        if match is not None and not is_asof:
            raise self.failures.syntax(
                "only an ASOF JOIN takes MATCH_CONDITION", start, hint="write ASOF JOIN or LEFT ASOF JOIN"
            )
        if is_asof and match is None:
            raise self.unexpected(["MATCH_CONDITION"], after="the second stream of an ASOF JOIN")
        if join.args.get("on") or join.args.get("using") or is_asof or join.kind == "CROSS":
            return
        if isinstance(join.this, exp.Lateral | exp.Unnest) and not join.side:
            return
        if self._prev.token_type in (TokenType.ON, TokenType.USING):
            raise self.unexpected(["a condition"], after=self._prev.text.upper())
        misplaced = any(map(self.at, BOUNDS))
        hint = "WITHIN, GRACE PERIOD and ALLOWED LATENESS follow the ON condition" if misplaced else None
        raise self.unexpected(["ON", "USING"], after="the second stream of a JOIN", hint=hint)

    def _parse_bounds(self, join: StreamJoin) -> None:
        while any(map(self.at, BOUNDS)):
            start = self._curr
            first = start.text.upper()
            key, second = BOUNDS[first]
            if join.args.get(key):
                raise self.failures.syntax(f"a join takes only one {first}", start)
            self._advance()
            if second is None:
                within = self._parse_within()
                place(within, start)
                join.set(key, within)
                continue
            if not self.take(second):
                raise self.unexpected([second], after=first)
            join.set(key, self.clause_interval(f"{first} {second}"))

    def _parse_within(self) -> Within:
        if not self._match(TokenType.L_PAREN):
            bound = self.clause_interval("WITHIN", "'('")
            return Within(this=bound, expression=bound.copy())
        before = self.clause_interval("WITHIN (")
        self.require(TokenType.COMMA, "',' and a second INTERVAL", after="the first INTERVAL of WITHIN (")
        after = self.clause_interval("','")
        self.require(TokenType.R_PAREN, "')'", after="the second INTERVAL of WITHIN (")
        return Within(this=before, expression=after)


class Watersmeet(Spark):
    """The dialect.  Its parser only parses queries; ``watersmeet.sql.parse`` parses statements."""

    class Tokenizer(Spark.Tokenizer):
        """Spark's tokenizer, without the keywords that turn the rest of a statement into opaque text."""

        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            word: token_type
            for word, token_type in Spark.Tokenizer.KEYWORDS.items()
            if token_type not in (TokenType.COMMAND, TokenType.SETTINGS)
        }
        COMMANDS: ClassVar[set[TokenType]] = set()

    Parser = QueryParser
