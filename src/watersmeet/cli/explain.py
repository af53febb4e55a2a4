"""``watersmeet explain``: how the queries of a script would run, without Spark and without running any."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from watersmeet.cli.options import DEFAULT_WORKSPACE, UsageError, Workspace, read_script
from watersmeet.errors import BindError, CatalogError, ConfigError, Position, UnsupportedError, did_you_mean

if TYPE_CHECKING:
    from watersmeet.catalog.streams import StreamDef
    from watersmeet.plan.physical_plan import PhysicalPlan
    from watersmeet.sql.statements import (
        CreateIndex,
        CreateStream,
        CreateTable,
        Drop,
        DropIndex,
        Explain,
        Historical,
        InsertHistorical,
        InsertSelect,
        Query,
        Statement,
    )

Script = Annotated[
    str | None, typer.Argument(metavar="FILE", help="A file of SQL statements, or - for standard input.")
]
Text = Annotated[str | None, typer.Option("-e", "--execute", metavar="SQL", help="Statements in place of a file.")]


def explain(script: Script = None, execute: Text = None, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Print the plan of each query: windows, keys, bounds of the state, where each condition is tested."""
    if (script is None) == (execute is None):
        raise UsageError("explain takes either a file or -e 'SQL'")
    text = execute if execute is not None else read_script(script or "")
    count = 0
    try:
        for plan in explain_script(text, workspace):
            typer.echo(f"\n{plan}" if count else plan)
            count += 1
    except CatalogError as error:
        if error.hint is None and not workspace.exists():
            error.hint = f"there is no workspace {workspace}, so streams are those that this text creates"
        raise
    if not count:
        raise ConfigError("there is no query here", hint="give a SELECT, after the CREATE STREAM statements it needs")


def explain_script(text: str, workspace: Path) -> Iterator[str]:
    """The plan of each query in a script.

    Queries see the streams of the workspace and what the script makes of them, which is not kept.  Raises the error
    of the first statement that a run would refuse for what it says.
    """
    from watersmeet.sql.parse import parse

    script = _Script(workspace)
    for statement in parse(text):
        yield from script.explained(statement)


class _Script:
    """The streams as the statements of a script leave them, by lower-case name."""

    def __init__(self, workspace: Path) -> None:
        from watersmeet.catalog.catalog import Catalog

        self._streams = {stream.name.lower(): stream for stream in Catalog(workspace).streams().values()}

    def explained(self, statement: Statement) -> Iterator[str]:
        """The plan of a statement's query, if it has one; then the streams are as the statement leaves them."""
        from watersmeet.plan.explain import explain as plan_text
        from watersmeet.sql import statements as sql

        match statement:
            case sql.Historical() | sql.InsertHistorical() | sql.Explain(query=sql.HistoricalQuery()):
                yield self._stored(statement)
            case sql.Select(query=query) | sql.Explain(query=sql.Query() as query):
                yield plan_text(self._plan(query))
            case sql.InsertSelect():
                yield plan_text(self._insert(statement))
            case sql.CreateStream(query=sql.Query() as query):
                plan = self._plan(query)
                if self._is_fed_by(statement):
                    yield plan_text(plan)
                    self._add_derived(statement, query)
            case sql.CreateStream():
                self._create(statement)
            case sql.CreateTable():
                self._create_table(statement)
            case sql.CreateIndex() | sql.DropIndex():
                self._change_indexes(statement)
            case sql.Drop():
                self._drop(statement)
            case sql.InsertValues(stream=name) | sql.Describe(name=name) | sql.ShowCreate(name=name):
                self._require(name, statement.position)

    def _plan(self, query: Query) -> PhysicalPlan:
        from watersmeet.bind.planning import plan_query

        return plan_query(query, self._streams)

    def _stored(self, statement: Historical | InsertHistorical | Explain) -> str:
        from watersmeet.bind.table_queries import explain_stored
        from watersmeet.sql import statements as sql

        inner = statement.statement if isinstance(statement, sql.Explain) else statement
        assert isinstance(inner, sql.Historical | sql.InsertHistorical)
        target = self._target(inner) if isinstance(inner, sql.InsertHistorical) else None
        return explain_stored(inner.query, self._streams, target)

    def _insert(self, statement: InsertSelect) -> PhysicalPlan:
        from watersmeet.bind.insert_target import check_target

        target = self._target(statement)
        plan = self._plan(statement.query)
        check_target(target, [column.name for column in plan.outputs], statement)
        if plan.weighted:  # the connectors are slow to load
            from watersmeet.session.streams import check_corrections

            check_corrections(target, plan, statement)
        return plan

    def _target(self, statement: InsertSelect | InsertHistorical) -> StreamDef:
        target = self._require(statement.stream, statement.position)
        if target.outside:
            raise UnsupportedError(
                f"{target.name} is an outside table: it is only looked up in", position=statement.position
            )
        if target.derived:
            raise UnsupportedError(
                f"{target.name} is fed by its own query (CREATE STREAM … AS)", position=statement.position
            )
        return target

    def _create(self, statement: CreateStream) -> None:
        from watersmeet.bind.define import define_stream
        from watersmeet.catalog.catalog import is_new

        stream = define_stream(statement)
        _check_options(stream, statement)
        try:
            added = is_new(stream, self._streams.get(stream.name.lower()), if_not_exists=statement.if_not_exists)
        except CatalogError as error:
            error.position = statement.position
            raise
        if added:
            self._streams[stream.name.lower()] = stream

    def _change_indexes(self, statement: CreateIndex | DropIndex) -> None:
        from watersmeet.bind.indexes import with_index, without_index
        from watersmeet.sql.statements import CreateIndex

        stream = self._require(statement.stream, statement.position)
        changed = (
            with_index(stream, statement) if isinstance(statement, CreateIndex) else without_index(stream, statement)
        )
        self._streams[stream.name.lower()] = changed

    def _create_table(self, statement: CreateTable) -> None:
        from watersmeet.bind.define import define_table
        from watersmeet.catalog.catalog import is_new
        from watersmeet.lookup.tables import table_options

        table = define_table(statement)
        places = statement.options_positions
        try:
            table_options(table)
            added = is_new(table, self._streams.get(table.name.lower()), if_not_exists=statement.if_not_exists)
        except ConfigError as error:
            error.position = places.get(error.option or "connector", statement.position)
            raise
        except CatalogError as error:
            error.position = statement.position
            raise
        if added:
            self._streams[table.name.lower()] = table

    def _is_fed_by(self, statement: CreateStream) -> bool:
        """Whether CREATE STREAM … AS starts its query: not where IF NOT EXISTS lets another stream stay."""
        from watersmeet.bind.define import check_name, refuse_definitions

        check_name(statement.name, statement.position)
        refuse_definitions(statement)
        known = self._streams.get(statement.name.lower())
        if known is None or known.definition == statement.source:
            return True
        if statement.if_not_exists:
            return False
        raise CatalogError(
            f"there is a stream {known.name} already, with another definition",
            hint="use another name, or DROP STREAM it first",
            position=statement.position,
        )

    def _add_derived(self, statement: CreateStream, query: Query) -> None:
        """Add the stream that a query feeds; the harness works out the types of its columns."""
        from watersmeet.plan.lineage import derived_stream
        from watersmeet.testing.harness import Harness

        try:
            harness = Harness(self._streams, query)
        except BindError as error:
            raise UnsupportedError(
                f"the columns of {statement.name} cannot be worked out without Spark",
                detail=error.message,
                hint="EXPLAIN what comes after it in `watersmeet sql`",
                position=statement.position,
            ) from None
        columns = list(zip(harness.column_names, harness.column_types, strict=True))
        options = statement.options or None
        stream = derived_stream(statement.name, harness.plan.query, columns, statement.source, options=options)
        _check_options(stream, statement)
        self._streams[stream.name.lower()] = stream

    def _drop(self, statement: Drop) -> None:
        known = self._streams.get(statement.name.lower())
        if known is not None and known.kind.upper() != statement.kind:
            raise CatalogError(f"there is no {statement.kind.lower()} {statement.name}", position=statement.position)
        if not statement.if_exists:
            self._require(statement.name, statement.position, statement.kind.lower())
        self._streams.pop(statement.name.lower(), None)

    def _require(self, name: str, position: Position, kind: str = "stream") -> StreamDef:
        if (stream := self._streams.get(name.lower())) is not None:
            return stream
        known = [stream.name for stream in self._streams.values()]
        raise CatalogError(f"there is no {kind} {name}", hint=did_you_mean(name, known), position=position)


def _check_options(stream: StreamDef, statement: CreateStream) -> None:
    """Check connector and options; the connectors, slow to load, are asked where there is something to check."""
    from watersmeet.catalog.streams import EMBEDDED

    if stream.connector != EMBEDDED or stream.options:
        from watersmeet.session.streams import check_connector

        check_connector(stream, statement)
