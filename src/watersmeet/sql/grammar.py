"""The grammar of statements, with EMIT and SETTINGS at the end of queries.

statement := query | CREATE ... | INSERT INTO ... | EXPLAIN statement | SHOW ... | DESCRIBE ... | DROP ... | STOP ...
query     := select {EMIT (FINAL | CHANGELOG | EVERY interval) | SETTINGS key = value {, key = value}}
           | Spark's SQL over table(name)
create    := CREATE ([MUTABLE] STREAM | TABLE) [IF NOT EXISTS] name ['(' item {',' item} ')']
             {PRIMARY KEY (names) | WITH (key = value, ...) | SETTINGS ...} [AS query]
item      := name type [PRIMARY KEY] | PRIMARY KEY (names) | WATERMARK FOR name AS name ['-' interval]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.errors import Position
from watersmeet.expressions.positions import token_position
from watersmeet.sql.collation import BINARY, HINT, message, refuse_collations
from watersmeet.sql.failures import is_word, nearest_keyword
from watersmeet.sql.parts import QUERY_STARTS, PartsParser
from watersmeet.sql.state_queries import find_state
from watersmeet.sql.statements import (
    ColumnDef,
    CreateIndex,
    CreateStream,
    CreateTable,
    Describe,
    Drop,
    DropIndex,
    Explain,
    Historical,
    HistoricalQuery,
    InsertHistorical,
    InsertSelect,
    InsertValues,
    Query,
    Select,
    SelectState,
    SettingValue,
    Show,
    ShowCreate,
    Statement,
    StateQuery,
    StopQuery,
    Watermark,
)
from watersmeet.sql.table_queries import find_historical

STATEMENT_STARTS = ["SELECT", "WITH", "CREATE", "INSERT", "EXECUTE", "EXPLAIN", "SHOW", "DESCRIBE", "DROP", "STOP"]
CHANGE_HINT = "INSERT INTO a stream with a PRIMARY KEY replaces the row of the same key"
DELETE_HINT = "to delete a row, INSERT one with its PRIMARY KEY and a _tp_delta of -1; DROP STREAM deletes all rows"
START_HINTS = {
    "UPDATE": CHANGE_HINT,
    "MERGE": CHANGE_HINT,
    "UPSERT": CHANGE_HINT,
    "DELETE": DELETE_HINT,
    "TRUNCATE": "DROP STREAM, then CREATE STREAM again",
    "ALTER": "DROP STREAM, then CREATE STREAM again",
    "SET": "settings belong at the end of a query: SELECT ... SETTINGS key = value",
}


@dataclass(slots=True)
class _Body:
    """The parts of a CREATE statement read so far."""

    columns: list[ColumnDef] = field(default_factory=list)
    watermark: Watermark | None = None
    primary_key: tuple[str, ...] | None = None
    key_positions: dict[str, Position] = field(default_factory=dict)
    options: dict[str, str] | None = None
    options_positions: dict[str, Position] = field(default_factory=dict)
    settings: dict[str, SettingValue] | None = None
    settings_positions: dict[str, Position] = field(default_factory=dict)


class StatementParser(PartsParser):
    """Parses one statement from its tokens, anchored as by ``expressions.positions.anchor``."""

    def statement_of(self, tokens: list[Token], text: str) -> Statement:
        """Return the statement in ``tokens`` (at least one, no semicolon); ``text`` is the whole script.

        Raises SqlSyntaxError or UnsupportedError.
        """
        self.reset()
        self.sql = text
        self._chunks = [tokens]
        self._advance_chunk()
        source = text[tokens[0].start : tokens[-1].end + 1]
        try:
            statement = self._statement(source)
        except ParseError as error:
            token = error.errors[0].get("token") if error.errors else self._curr
            raise self.failures.reworded(error, token) from None
        except RecursionError:
            raise self.failures.syntax("the statement is nested too deeply", tokens[0]) from None
        except (ValueError, ArithmeticError):  # sqlglot takes a few texts for names and numbers that are none
            raise self.failures.syntax("this cannot be read as SQL", self._prev or tokens[0]) from None
        if self._curr:
            raise self.unexpected(["the end of the statement"])
        return statement

    def _statement(self, source: str) -> Statement:
        start = self._curr
        position = token_position(start)
        if start.token_type in QUERY_STARTS:
            if (state := self._state_query()) is not None:
                return SelectState(state, position, source)
            if (stored := self._historical()) is not None:
                return Historical(stored, position, source)
            return Select(self.query(), position, source)
        if self.take("CREATE"):
            return self._create(position, source)
        if self.take("INSERT"):
            return self._insert(position, source)
        if self.take("EXPLAIN"):
            return self._explain(position, source)
        if self.take("SHOW"):
            return self._show(position, source)
        if self.take("DESCRIBE") or self.take("DESC"):
            _ = self.take("STREAM") or self.take("TABLE")
            return Describe(self.name("a stream name", "DESCRIBE"), position, source)
        if self.take("DROP"):
            return self._drop(position, source)
        if self.take("STOP"):
            if not self.take("QUERY"):
                raise self.unexpected(["QUERY"], after="STOP")
            return StopQuery(self.name("a query name", "STOP QUERY"), position, source)
        raise self.unexpected(STATEMENT_STARTS, hint=START_HINTS.get(start.text.upper()))

    # CREATE

    def _create(self, position: Position, source: str) -> CreateStream | CreateTable | CreateIndex:
        if self.take("INDEX"):
            if_not_exists = self.take("IF", "NOT", "EXISTS")
            name, stream = self._index_name("IF NOT EXISTS" if if_not_exists else "CREATE INDEX")
            self.require(TokenType.L_PAREN, "'('", after=f"ON {stream}")
            places: dict[str, Position] = {}
            columns = self.names(f"{stream} (", places)
            return CreateIndex(name, stream, columns, if_not_exists, position, source, places)
        mutable = self.take("MUTABLE")
        is_table = not mutable and self.take("TABLE")
        if not is_table and not self.take("STREAM"):
            choices = ["STREAM"] if mutable else ["STREAM", "MUTABLE STREAM", "TABLE", "INDEX"]
            raise self.unexpected(choices, after="MUTABLE" if mutable else "CREATE")
        kind = "TABLE" if is_table else "STREAM"
        if_not_exists = self.take("IF", "NOT", "EXISTS")
        name = self.name(f"a {kind.lower()} name", "IF NOT EXISTS" if if_not_exists else f"CREATE {kind}")
        body = _Body()
        query: Query | None = None
        if self._match(TokenType.L_PAREN):
            self._columns(body)
        self._create_clauses(body)
        if self._match(TokenType.ALIAS):
            self._refuse_historical(kind, name)
            query = self.query()
        elif self._curr or not (body.columns or body.options):
            raise self.unexpected(self._create_choices(body))
        make = CreateTable if is_table else CreateStream
        return make(
            name=name,
            columns=tuple(body.columns),
            watermark=body.watermark,
            primary_key=body.primary_key or (),
            mutable=mutable,
            options=body.options or {},
            settings=body.settings or {},
            if_not_exists=if_not_exists,
            query=query,
            position=position,
            source=source,
            key_positions=body.key_positions,
            options_positions=body.options_positions,
            settings_positions=body.settings_positions,
        )

    def _index_name(self, after: str) -> tuple[str, str]:
        """Parse the name of an index and the name of its stream."""
        name = self.name("an index name", after)
        if not self.take("ON"):
            raise self.unexpected(["ON"], after=name)
        return name, self.name("a stream name", "ON")

    def _create_choices(self, body: _Body) -> list[str]:
        choices = [] if body.columns else ["'('"]
        choices += [] if body.primary_key else ["PRIMARY KEY"]
        choices += [] if body.options is not None else ["WITH"]
        choices += [] if body.settings is not None else ["SETTINGS"]
        choices.append("AS")
        return choices if not (body.columns or body.options) else [*choices, "the end of the statement"]

    def _columns(self, body: _Body) -> None:
        while True:
            token = self._curr
            if self.at("WATERMARK", "FOR"):
                self.once("WATERMARK", token, body.watermark)
                body.watermark = self._watermark()
            elif token.token_type == TokenType.PRIMARY_KEY:
                self._primary_key(body)
            else:
                body.columns.append(self._column(body))
            if self._match(TokenType.R_PAREN):
                return
            if not self._match(TokenType.COMMA):
                self._refuse_constraint()
                raise self.unexpected(["','", "')'", "PRIMARY KEY"])

    def _column(self, body: _Body) -> ColumnDef:
        token = self._curr
        name = self.name("a column name", self.failures.found(self._prev))
        type_token = self._curr
        data_type = self._parse_types(schema=True) if type_token else None
        if not isinstance(data_type, exp.DataType) or data_type.is_type(exp.DType.USERDEFINED):
            known = [
                str(word) for word, kind in self.dialect.tokenizer_class.KEYWORDS.items() if kind in self.TYPE_TOKENS
            ]
            nearest = nearest_keyword(type_token.text, known) if type_token and is_word(type_token) else None
            raise self.failures.expected(
                type_token, ["a type"], after=f"the column {name}", hint=f"did you mean {nearest}?" if nearest else None
            )
        self._refuse_collation(data_type)
        if self._curr.token_type == TokenType.PRIMARY_KEY and self._next.token_type != TokenType.L_PAREN:
            self.once("PRIMARY KEY", self._curr, body.primary_key)
            self._advance()
            body.primary_key = (name,)
        return ColumnDef(name, data_type, token_position(token))

    def _refuse_collation(self, data_type: exp.DataType) -> None:
        refuse_collations(data_type, self.failures)
        token = self._curr
        if not self._match(TokenType.COLLATE):
            return
        collation = self._curr.text if self._curr else ""
        if collation.upper() != BINARY:
            raise self.failures.unsupported(message(collation), token, hint=HINT)
        self._advance()

    def _refuse_constraint(self) -> None:
        if self.at("NOT", "NULL"):
            raise self.failures.unsupported(
                "NOT NULL is not supported on a column",
                self._curr,
                hint="leave it out; a row without an event time is quarantined anyway",
            )

    def _watermark(self) -> Watermark:
        start = self._curr
        self._advance(2)
        column = self.name("a column name", "WATERMARK FOR")
        self.require(TokenType.ALIAS, "AS", after=f"WATERMARK FOR {column}")
        again = self._curr
        if self.name("the same column", "AS").lower() != column.lower():
            raise self.failures.syntax(
                f"found {self.failures.found(again)}, but a watermark for {column} uses {column} itself",
                again,
                hint=f"write WATERMARK FOR {column} AS {column} - INTERVAL '5' SECONDS",
            )
        delay: exp.Expr | None = None
        if self._match(TokenType.DASH):
            number = self._curr
            if self._match(TokenType.NUMBER):
                delay = exp.Literal.number(number.text).update_positions(number)
            else:
                delay = self.clause_interval("'-'", "a number")
        return Watermark(column, delay, token_position(start))

    def _primary_key(self, body: _Body) -> None:
        self.once("PRIMARY KEY", self._curr, body.primary_key)
        self._advance()
        self.require(TokenType.L_PAREN, "'('", after="PRIMARY KEY")
        body.primary_key = self.names("PRIMARY KEY (", body.key_positions)
        _ = self.take("NOT", "ENFORCED")

    def _create_clauses(self, body: _Body) -> None:
        while True:
            token = self._curr
            if token.token_type == TokenType.PRIMARY_KEY:
                self._primary_key(body)
            elif self._match(TokenType.WITH):
                self.once("WITH", token, body.options)
                self.require(TokenType.L_PAREN, "'('", after="WITH")
                pairs = {} if self._match(TokenType.R_PAREN) else self.pairs(body.options_positions, "WITH (")
                if pairs and not self._match(TokenType.R_PAREN):
                    raise self.unexpected(["','", "')'"])
                body.options = {key: _option_text(value) for key, value in pairs.items()}
            elif self.take("SETTINGS"):
                self.once("SETTINGS", token, body.settings)
                body.settings = self.settings(body.settings_positions)
            else:
                return

    # Queries over stored rows

    def _historical(self) -> HistoricalQuery | None:
        """Parse the rest of the statement if it is a query over ``table(name)``."""
        rest = self._tokens[self._index :]
        found = find_historical(rest, self.sql)
        if found is not None:
            self._advance(len(rest))
        return found

    def _state_query(self) -> StateQuery | None:
        """Parse the rest of the statement if it is a query over ``state('query')``."""
        rest = self._tokens[self._index :]
        found = find_state(rest, self.sql)
        if found is not None:
            self._advance(len(rest))
        return found

    def _refuse_state(self, what: str) -> None:
        if (state := find_state(self._tokens[self._index :], self.sql)) is not None:
            raise self.failures.unsupported_at(
                f"{what} takes no query over state(…)",
                state.relations[0].position,
                hint="state(…) is read by a SELECT on its own",
            )

    def _refuse_historical(self, kind: str, name: str) -> None:
        self._refuse_state(f"CREATE {kind} … AS")
        if (stored := find_historical(self._tokens[self._index :], self.sql)) is not None:
            raise self.failures.unsupported_at(
                f"CREATE {kind} … AS takes a streaming query, but table(…) reads the rows stored now",
                stored.tables[0].position,
                hint=f"CREATE STREAM {name} with its columns, then INSERT INTO {name} SELECT …",
            )

    # The other statements

    def _insert(self, position: Position, source: str) -> InsertValues | InsertSelect | InsertHistorical:
        if not self._match(TokenType.INTO):
            raise self.unexpected(["INTO"], after="INSERT")
        stream = self.name("a stream name", "INSERT INTO")
        columns: tuple[str, ...] = ()
        if self._curr.token_type == TokenType.L_PAREN and self._next.token_type not in QUERY_STARTS:
            self._advance()
            columns = self.names(f"{stream} (")
        if self._match(TokenType.VALUES):
            return InsertValues(stream, columns, self._rows(), position, source)
        if self._curr.token_type not in QUERY_STARTS:
            choices = [*([] if columns else ["'('"]), "VALUES", "SELECT", "WITH"]
            raise self.unexpected(choices, after=f"INSERT INTO {stream}")
        self._refuse_state("INSERT INTO")
        if (stored := self._historical()) is not None:
            return InsertHistorical(stream, columns, stored, position, source)
        return InsertSelect(stream, columns, self.query(), position, source)

    def _rows(self) -> tuple[tuple[exp.Expr, ...], ...]:
        rows: list[tuple[exp.Expr, ...]] = []
        while not rows or self._match(TokenType.COMMA):
            self.require(TokenType.L_PAREN, "'('", after="','" if rows else "VALUES")
            start = self._curr
            values = self._parse_csv(self._parse_disjunction)
            if not values:
                raise self.unexpected(["a value"], after="'('")
            self._match_r_paren()
            for value in values:
                self.limit_depth(value, start)
            rows.append(tuple(values))
        return tuple(rows)

    def _explain(self, position: Position, source: str) -> Explain:
        start = self._curr
        if not (start.token_type in QUERY_STARTS or self.at("INSERT") or self.at("CREATE")):
            choices = ["SELECT", "WITH", "INSERT INTO", "CREATE STREAM", "EXECUTE STATEMENT SET"]
            raise self.unexpected(choices, after="EXPLAIN")
        self._refuse_state("EXPLAIN")
        statement = self._statement(self.sql[start.start : self._tokens[-1].end + 1])
        if isinstance(statement, (Select, InsertSelect, Historical, InsertHistorical)):
            return Explain(statement.query, statement, position, source)
        if isinstance(statement, CreateStream) and statement.query:
            return Explain(statement.query, statement, position, source)
        raise self.failures.syntax(
            "EXPLAIN takes a statement that contains a query",
            start,
            hint="SELECT, INSERT INTO ... SELECT or CREATE STREAM ... AS",
        )

    def _show(self, position: Position, source: str) -> Show | ShowCreate:
        kinds: tuple[Literal["STREAMS", "TABLES", "QUERIES"], ...] = ("STREAMS", "TABLES", "QUERIES")
        for what in kinds:
            if self.take(what):
                return Show(what, position, source)
        if not self.take("CREATE"):
            raise self.unexpected([*kinds, "CREATE STREAM"], after="SHOW")
        if not (self.take("STREAM") or self.take("TABLE")):
            raise self.unexpected(["STREAM", "TABLE"], after="SHOW CREATE")
        return ShowCreate(self.name("a stream name", "SHOW CREATE STREAM"), position, source)

    def _drop(self, position: Position, source: str) -> Drop | DropIndex:
        if self.take("INDEX"):
            if_exists = self.take("IF", "EXISTS")
            return DropIndex(*self._index_name("IF EXISTS" if if_exists else "DROP INDEX"), if_exists, position, source)
        kinds: tuple[Literal["STREAM", "TABLE"], ...] = ("STREAM", "TABLE")
        for kind in kinds:
            if self.take(kind):
                if_exists = self.take("IF", "EXISTS")
                name = self.name(f"a {kind.lower()} name", "IF EXISTS" if if_exists else f"DROP {kind}")
                return Drop(name, if_exists, position, kind, source)
        raise self.unexpected(["STREAM", "TABLE", "INDEX"], after="DROP")


def _option_text(value: SettingValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
