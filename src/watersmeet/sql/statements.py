"""The parser's results: one frozen dataclass for each kind of statement.

Every statement has the ``position`` of its first character in the whole text, and its ``source``: the text as
written, without the closing semicolon.  The catalog stores the source and SHOW CREATE prints it, because trees are
never rendered back to SQL.  Comparisons ignore it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sqlglot import exp

from watersmeet.errors import Position
from watersmeet.kernels.api import EmitMode

SettingValue: TypeAlias = str | int | float | bool


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """A declared column: its name as written, and its Spark type."""

    name: str
    type: exp.DataType
    position: Position


@dataclass(frozen=True, slots=True)
class Watermark:
    """``WATERMARK FOR column AS column [- delay]``.

    ``delay`` is an ``exp.Interval`` in normal form (see ``watersmeet.expressions.nodes``), a number ``exp.Literal``
    for event times that are sequence numbers, or None for no delay.
    """

    column: str
    delay: exp.Expr | None
    position: Position


@dataclass(frozen=True, slots=True)
class Query:
    """A SELECT, or several under UNION, INTERSECT or EXCEPT, with the clauses at its end.

    ``settings_positions`` has the position of each key in ``settings``.
    """

    select: exp.Select | exp.SetOperation
    emit: EmitMode | None
    emit_position: Position | None
    settings: dict[str, SettingValue]
    position: Position
    settings_positions: Mapping[str, Position] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Relation:
    """A name after FROM or JOIN, alone or as ``table(name)``; ``start`` and ``end`` are offsets in the script.

    ``takes_alias`` is true if no alias follows, and one could be inserted.
    """

    name: str
    start: int
    end: int
    position: Position
    takes_alias: bool = False


@dataclass(frozen=True, slots=True)
class HistoricalQuery:
    """A query over ``table(name)``: Spark SQL over stored rows, from ``start`` to ``end`` in the script.

    ``tables`` are its ``table(name)``, ``others`` the plain names in places where a stream could be (except names of
    CTEs), ``empty_counts`` the offsets of the closing parenthesis in each ``count()``.
    """

    script: str
    start: int
    end: int
    tables: tuple[Relation, ...]
    others: tuple[Relation, ...]
    empty_counts: tuple[int, ...]
    hidden: frozenset[str]
    """The columns that ``*`` leaves out which it names, in lower case."""
    position: Position


@dataclass(frozen=True, slots=True)
class CreateStream:
    """CREATE [MUTABLE] STREAM.  ``options`` are those of WITH; ``query`` is set for CREATE STREAM ... AS."""

    name: str
    columns: tuple[ColumnDef, ...]
    watermark: Watermark | None
    primary_key: tuple[str, ...]
    mutable: bool
    options: dict[str, str]
    settings: dict[str, SettingValue]
    if_not_exists: bool
    query: Query | None
    position: Position
    source: str = field(default="", compare=False, repr=False)
    key_positions: Mapping[str, Position] = field(default_factory=dict, compare=False, repr=False)
    options_positions: Mapping[str, Position] = field(default_factory=dict, compare=False, repr=False)
    settings_positions: Mapping[str, Position] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE: an external table for lookups.  It has the fields of a stream; ``mutable`` is always false."""

    name: str
    columns: tuple[ColumnDef, ...]
    watermark: Watermark | None
    primary_key: tuple[str, ...]
    mutable: bool
    options: dict[str, str]
    settings: dict[str, SettingValue]
    if_not_exists: bool
    query: Query | None
    position: Position
    source: str = field(default="", compare=False, repr=False)
    key_positions: Mapping[str, Position] = field(default_factory=dict, compare=False, repr=False)
    options_positions: Mapping[str, Position] = field(default_factory=dict, compare=False, repr=False)
    settings_positions: Mapping[str, Position] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """CREATE INDEX [IF NOT EXISTS] name ON stream (columns)."""

    name: str
    stream: str
    columns: tuple[str, ...]
    if_not_exists: bool
    position: Position
    source: str = field(default="", compare=False, repr=False)
    columns_positions: Mapping[str, Position] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class DropIndex:
    """DROP INDEX [IF EXISTS] name ON stream."""

    name: str
    stream: str
    if_exists: bool
    position: Position
    source: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class InsertValues:
    """INSERT INTO stream [(columns)] VALUES rows.

    ``columns`` is empty if none are named.  The parser does not check the lengths of the rows.
    """

    stream: str
    columns: tuple[str, ...]
    rows: tuple[tuple[exp.Expr, ...], ...]
    position: Position
    source: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class InsertSelect:
    """INSERT INTO stream [(columns)] query."""

    stream: str
    columns: tuple[str, ...]
    query: Query
    position: Position
    source: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class StatementSet:
    """EXECUTE STATEMENT SET BEGIN statements END: queries that run as one."""

    inserts: tuple[InsertSelect, ...]
    position: Position
    source: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Select:
    """A query on its own."""

    query: Query
    position: Position
    source: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Historical:
    """A query over stored rows, on its own."""

    query: HistoricalQuery
    position: Position
    source: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class StateRelation:
    """``state('query', 'relation')`` in FROM or JOIN; ``start`` and ``end`` are offsets in the script."""

    query: str
    relation: str
    start: int
    end: int
    position: Position


@dataclass(frozen=True, slots=True)
class StateQuery:
    """A query over ``state(…)``: DuckDB's SQL, from ``start`` to ``end`` in the script."""

    script: str
    start: int
    end: int
    relations: tuple[StateRelation, ...]
    position: Position


@dataclass(frozen=True, slots=True)
class SelectState:
    """A SELECT over the state of queries."""

    query: StateQuery
    position: Position
    source: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class InsertHistorical:
    """INSERT INTO stream [(columns)] query, for a query over stored rows."""

    stream: str
    columns: tuple[str, ...]
    query: HistoricalQuery
    position: Position
    source: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN statement; ``query`` is the query of the statement (None: it is a set of statements)."""

    query: Query | HistoricalQuery | None
    statement: Select | InsertSelect | CreateStream | Historical | InsertHistorical | StatementSet
    position: Position
    source: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW STREAMS, SHOW TABLES or SHOW QUERIES."""

    what: Literal["STREAMS", "TABLES", "QUERIES"]
    position: Position
    source: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ShowCreate:
    """SHOW CREATE STREAM name, SHOW CREATE TABLE name."""

    name: str
    position: Position
    source: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Describe:
    """DESCRIBE [STREAM | TABLE] name."""

    name: str
    position: Position
    source: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Drop:
    """DROP STREAM | TABLE [IF EXISTS] name.  ``kind`` is the keyword as written."""

    name: str
    if_exists: bool
    position: Position
    kind: Literal["STREAM", "TABLE"] = "STREAM"
    source: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class StopQuery:
    """STOP QUERY name."""

    name: str
    position: Position
    source: str = field(default="", compare=False, repr=False)


Statement: TypeAlias = (
    Select
    | Historical
    | SelectState
    | InsertValues
    | InsertSelect
    | InsertHistorical
    | StatementSet
    | CreateStream
    | CreateTable
    | CreateIndex
    | DropIndex
    | Explain
    | Show
    | ShowCreate
    | Describe
    | Drop
    | StopQuery
)
