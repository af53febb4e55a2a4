"""The base of all parsing: sqlglot's Spark parser made strict, with positions and readable errors.

A trailing comma, an empty select list and an empty GROUP BY are errors.  Clauses of Spark that no later stage reads
are refused with their position.  No statement becomes an opaque ``exp.Command``.  EMIT, SETTINGS, WITHIN, GRACE,
VERSIONED and MATCH_CONDITION are not keywords of the tokenizer, so columns may have these names, but the parser never
takes them for an alias.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar, TypeVar

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.errors import SqlSyntaxError, UnsupportedError
from watersmeet.expressions.positions import place, position_of
from watersmeet.sql.arguments import drops_arguments
from watersmeet.sql.failures import Failures, is_word

T = TypeVar("T")
F = TypeVar("F", bound=exp.Func)
E = TypeVar("E", bound=exp.Expr)
NEVER_ALIASES = frozenset({"EMIT", "SETTINGS", "WITHIN", "GRACE", "VERSIONED", "MATCH_CONDITION"})
NULLS_CHOSEN: tuple[type[exp.Func], ...] = (exp.AnyValue, exp.First, exp.FirstValue, exp.Last, exp.LastValue)
FOREIGN_CLAUSES = (
    TokenType.MATCH_RECOGNIZE, TokenType.PREWHERE, TokenType.FOR,
    TokenType.LOCK, TokenType.TABLE_SAMPLE, TokenType.USING, TokenType.CLUSTER_BY, TokenType.DISTRIBUTE_BY,
    TokenType.SORT_BY, TokenType.CONNECT_BY, TokenType.FETCH,
)  # fmt: skip


def _taking_nulls(function: type[exp.Func]) -> Callable[[list[exp.Expr]], exp.Expr]:
    """Builder of a function whose second argument, TRUE or FALSE, stands for IGNORE NULLS or RESPECT NULLS."""

    def build(args: list[exp.Expr]) -> exp.Expr:
        call = function.from_arg_list(args[:1])
        if len(args) < 2:
            return call
        if len(args) > 2 or not isinstance(args[1], exp.Boolean):
            raise UnsupportedError(
                f"{function.sql_name().lower()} takes an expression, and TRUE or FALSE to ignore or respect NULLs",
                position=position_of(args[1]),
            )
        return exp.IgnoreNulls(this=call) if args[1].this else exp.RespectNulls(this=call)

    return build


def _refuse_clause(parser: StrictParser) -> tuple[str, Any]:
    if parser.at("FOR", "SYSTEM_TIME"):
        raise parser.failures.syntax(
            "FOR SYSTEM_TIME AS OF is not valid here",
            parser._curr,
            hint="it follows the name of its table, before ON: JOIN rates FOR SYSTEM_TIME AS OF o.ts r ON …",
        )
    raise parser.foreign(parser._curr.text.upper())


def _collected(args: list[exp.Expr]) -> exp.Expr:
    """Builder of collect_list and array_agg; sqlglot drops what follows the first argument."""
    if len(args) > 1:
        raise UnsupportedError("collect_list takes one expression", position=position_of(args[1]))
    return exp.ArrayAgg(this=args[0] if args else None, nulls_excluded=True)


class StrictParser(SparkParser):
    """Raises SqlSyntaxError for known causes, and sqlglot's ParseError for others (see ``Failures.reworded``)."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {
        **SparkParser.FUNCTIONS,
        **{function.sql_name(): _taking_nulls(function) for function in NULLS_CHOSEN},
        **dict.fromkeys(("COLLECT_LIST", "ARRAY_AGG"), _collected),
    }
    QUERY_MODIFIER_PARSERS: ClassVar[dict[TokenType, Callable[[Any], tuple[str, Any]]]] = {
        **SparkParser.QUERY_MODIFIER_PARSERS,
        **dict.fromkeys(FOREIGN_CLAUSES, _refuse_clause),
    }

    @property
    def failures(self) -> Failures:
        """The maker of errors about the statement being parsed."""
        return Failures(self.sql, self._tokens)

    def unexpected(self, choices: list[str], *, after: str | None = None, hint: str | None = None) -> SqlSyntaxError:
        """Return the error to raise if the current token is none of ``choices``."""
        return self.failures.expected(self._curr, choices, after=after, hint=hint)

    def at(self, *words: str) -> bool:
        """Return whether the next tokens are these bare words."""
        following = self._tokens[self._index : self._index + len(words)]
        return len(following) == len(words) and all(
            is_word(token) and token.text.upper() == word for token, word in zip(following, words, strict=True)
        )

    def take(self, *words: str) -> bool:
        """Consume these bare words if they are the next tokens; return whether they were."""
        found = self.at(*words)
        if found:
            self._advance(len(words))
        return found

    def require(self, token_type: TokenType, name: str, *, after: str | None = None) -> None:
        """Consume a sign, or raise an error that calls it ``name``."""
        if not self._match(token_type):
            raise self.unexpected([name], after=after)

    # Errors and strictness

    def validate_expression(self, expression: E, args: list[Any] | None = None) -> E:
        """Validate a node as sqlglot does, and refuse arguments of a function that it would drop."""
        found = super().validate_expression(expression, args)
        if args and drops_arguments(found, args):
            called = self._called()
            raise self.failures.syntax(f"{called.text} does not take {len(args)} arguments", called)
        return found

    def _called(self) -> Token:
        """The name of the function whose arguments have just been parsed."""
        depth = 0
        for number in reversed(range(self._index)):
            kind = self._tokens[number].token_type
            depth += (kind is TokenType.R_PAREN) - (kind is TokenType.L_PAREN)
            if depth < 0:
                return self._tokens[number - 1]
        return self._prev

    def raise_error(self, message: str, token: Token | None = None) -> None:
        """Raise sqlglot's error with the token at fault.  sqlglot's backtracking requires a ParseError."""
        error = ParseError.new(message, description=message)
        # For a CASE without END sqlglot points to the token before the unexpected one.
        error.errors[0]["token"] = self._curr if message.startswith("Expected END") else token or self._curr
        raise error

    def foreign(self, name: str) -> UnsupportedError:
        """Return the error to raise for a clause of Spark that starts at the current token."""
        return self.failures.unsupported(f"{name} is not supported", self._curr)

    def _parse_csv(self, parse_method: Callable[[], T | None], sep: TokenType = TokenType.COMMA) -> list[T]:
        first = parse_method()
        items = [] if first is None else [first]
        while self._match(sep):
            item = parse_method()
            if item is None:
                self.raise_error("Required keyword: 'this' missing for <class 'List'>")
            else:
                items.append(item)
        return items

    def _match_r_paren(self, expression: exp.Expr | None = None) -> None:
        for word in ("EMIT", "SETTINGS"):
            if self.at(word):
                raise self.failures.syntax(
                    f"{word} is not valid inside a subquery",
                    self._curr,
                    hint=f"{word} applies to the whole query: put it at the end of the statement",
                )
        super()._match_r_paren(expression)

    def _parse_statement(self) -> exp.Expr | None:
        # sqlglot calls this for the body of a CTE and for the query after WITH.
        starts = (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN, TokenType.VALUES)
        if self._curr.token_type not in starts:
            raise self.unexpected(["SELECT", "WITH", "'('"])
        return super()._parse_statement()

    def _parse_projections(self) -> tuple[list[exp.Expr], list[exp.Expr] | None]:
        projections, exclude = super()._parse_projections()
        if not projections:
            raise self.unexpected(["an expression", "'*'"], after="SELECT")
        return projections, exclude

    def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:
        if self._match_pair(TokenType.GROUP_BY, TokenType.ALL):  # sqlglot would take EMIT for a key
            if self._match(TokenType.COMMA, advance=False):
                raise self.unexpected(["no further key"], after="GROUP BY ALL")
            return self.expression(exp.Group(all=True))
        group = super()._parse_group(skip_group_by_token)
        if group is not None and not any(group.args.values()):
            raise self.unexpected(["an expression"], after="GROUP BY")
        return group

    # A key may be a condition; sqlglot takes none in CUBE, ROLLUP and GROUPING SETS.

    def _parse_cube_or_rollup(self, with_prefix: bool = False) -> exp.Cube | exp.Rollup | None:
        kinds: dict[TokenType, type[exp.Cube | exp.Rollup]] = {TokenType.CUBE: exp.Cube, TokenType.ROLLUP: exp.Rollup}
        if with_prefix or (kind := kinds.get(self._curr.token_type)) is None:
            return super()._parse_cube_or_rollup(with_prefix)
        self._advance()
        return self.expression(kind(expressions=self._parse_wrapped_csv(self._parse_disjunction)))

    def _parse_grouping_set(self) -> exp.Expr | None:
        return self._parse_grouping_sets() or self._parse_cube_or_rollup() or self._parse_disjunction()

    def _parse_named_window(self) -> exp.Expr | None:
        start = self._index
        self._parse_id_var()
        if not self._match(TokenType.ALIAS):
            raise self.unexpected(["AS"], after="the name of a window")
        if not self._match(TokenType.L_PAREN, advance=False) and self._parse_id_var(any_token=False) is None:
            raise self.unexpected(["'('"], after="AS")
        self._retreat(start)
        return super()._parse_named_window()

    def _parse_distinct_arg_function(self, func: type[F], distinct_index: int = 0) -> F:
        # sqlglot drops arguments that are too many
        args = self._parse_distinct_args()
        call: F = self.validate_expression(func.from_arg_list(args), args)
        return call

    def _parse_string_agg(self) -> exp.GroupConcat:
        call: exp.GroupConcat = self._parse_distinct_arg_function(exp.GroupConcat)
        index = self._index
        if self._match(TokenType.R_PAREN) and self._match_text_seq("WITHIN", "GROUP"):
            self._match_l_paren()
            call.set("this", self._parse_order(this=call.this))
        else:
            self._retreat(index)
        return call

    def _parse_distinct_args(self) -> list[exp.Expr]:
        is_distinct = self._match(TokenType.DISTINCT)
        args = self._parse_csv(self._parse_disjunction)
        if is_distinct and args:
            args[0] = exp.Distinct(expressions=[args[0]])
        return args

    def _parse_type_size(self) -> exp.DataTypeParam | None:
        start = self._curr
        size = super()._parse_type_size()
        if size is None or (isinstance(size.this, exp.Literal) and size.name.isdecimal() and not size.expression):
            return size
        raise self.failures.expected(start, ["a whole number"], after="the '(' of a type")

    def _parse_hint(self) -> exp.Hint | None:
        if self._curr.token_type == TokenType.HINT:
            raise self.failures.unsupported(
                "optimizer hints are not supported: they have no effect on a streaming join",
                self._curr,
                hint="leave out /*+ … */",
            )
        return None

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        if self._curr.token_type != TokenType.L_PAREN:
            raise self.unexpected(["'('"], after="IN")
        return super()._parse_in(this, alias)

    def _parse_pipe_syntax_query(self, query: exp.Query) -> exp.Query | None:
        raise self.foreign("the pipe |>")

    # Positions

    def _parse_unary(self) -> exp.Expr | None:
        start = self._curr
        node = super()._parse_unary()
        if node is not None:
            place(node, start)
        return node

    def _parse_select_query(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        start = self._curr
        node = super()._parse_select_query(*args, **kwargs)
        if node is not None:
            place(node, start)
        return node

    def _parse_limit(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        return self._placed(super()._parse_limit, *args, **kwargs)

    def _parse_offset(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        return self._placed(super()._parse_offset, *args, **kwargs)

    def _parse_ordered(self, *args: Any, **kwargs: Any) -> exp.Ordered | None:
        found = self._placed(super()._parse_ordered, *args, **kwargs)
        return found if isinstance(found, exp.Ordered) else None

    def _placed(self, parse: Callable[..., exp.Expr | None], *args: Any, **kwargs: Any) -> exp.Expr | None:
        start, index = self._curr, self._index
        node = parse(*args, **kwargs)
        if node is not None and self._index > index:
            place(node, start)
        return node

    # Aliases

    def _parse_alias(self, this: exp.Expr | None, explicit: bool = False) -> exp.Expr | None:
        return this if self._at_clause() else super()._parse_alias(this, explicit)

    def _parse_table_alias(self, alias_tokens: Collection[TokenType] | None = None) -> exp.TableAlias | None:
        if self._at_clause():
            return None
        word = self._next.text if self._curr.token_type == TokenType.ALIAS and is_word(self._next) else ""
        if word.upper() in NEVER_ALIASES:
            raise self.failures.syntax(
                f"{word.upper()} cannot be an alias", self._next, hint=f"put it in backquotes: `{word}`"
            )
        return super()._parse_table_alias(alias_tokens)

    def _parse_string_as_identifier(self) -> exp.Identifier | None:
        return None  # a string is not a name

    def _at_clause(self) -> bool:
        return is_word(self._curr) and self._curr.text.upper() in NEVER_ALIASES
