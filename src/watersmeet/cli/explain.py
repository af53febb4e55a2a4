"""``watersmeet explain``: the plans of a script's queries, without Spark and without running them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from watersmeet.cli.parameters import (
    DEFAULT_WORKSPACE,
    UsageError,
    Workspace,
    named_place,
    read_script,
    require_local,
)
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
        StatementSet,
    )

Script = Annotated[
    str | None, typer.Argument(metavar="FILE", help="A file of SQL statements, or - for standard input.")
]
Text = Annotated[str | None, typer.Option("-e", "--execute", metavar="SQL", help="Statements instead of a file.")]


def explain(script: Script = None, execute: Text = None, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Print the plan of each query: windows, keys, bounds of the state, and what it held when it last ran."""
    if (script is None) == (execute is None):
        raise UsageError("explain takes either a file or -e 'SQL'")
    place = require_local(
        named_place(workspace),
        "watersmeet explain",
        "take EXPLAIN in watersmeet shell, or a script that creates its streams",
    )
    text = execute if execute is not None else read_script(script or "")
    count = 0
    try:
        for plan in explain_script(text, place):
            typer.echo(f"\n{plan}" if count else plan)
            count += 1
    except CatalogError as error:
        if error.hint is None and not place.exists():
            error.hint = f"there is no workspace {workspace}, so only streams that the script creates are known"
        raise
    if not count:
        raise ConfigError("there is no query here", hint="add a SELECT after the CREATE STREAM statements it needs")


def explain_script(text: str, workspace: Path) -> Iterator[str]:
    """Yield the plan of each query in a script.

    Queries see the streams of the workspace, with the changes that the script makes.  The changes are not stored.
    Raises the error of the first statement that a run would refuse.
    """
    from watersmeet.sql.parse import parse

    script = _Script(workspace)
    for statement in parse(text):
        yield from script.explained(statement)


class _Script:
    """Explains statements one by one, and tracks the streams that they create and drop."""

    def __init__(self, workspace: Path) -> None:
        from watersmeet.catalog.catalog import Catalog
        from watersmeet.sql.query_names import NumberedNames

        self._streams = {stream.name.lower(): stream for stream in Catalog(workspace).streams().values()}
        self._checkpoints = workspace / "queries"
        self._names = NumberedNames()

    def explained(self, statement: Statement) -> Iterator[str]:
        """Yield the plan of the statement's query, if it has one, and apply the statement to the streams."""
        if (found := _set_of(statement)) is not None:
            yield self._set_text(found)
        else:
            yield from self._explained(statement)

    def _explained(self, statement: Statement) -> Iterator[str]:
        from watersmeet.sql import statements as sql
        from watersmeet.sql.query_names import insert_name, select_name

        match statement:
            case sql.Historical() | sql.InsertHistorical() | sql.Explain(query=sql.HistoricalQuery()):
                yield self._stored(statement)
            case sql.Select():
                yield self._text(self._plan(statement.query), select_name(statement.source))
            case sql.Explain():
                yield self._alone(statement)
            case sql.InsertSelect():
                plan = self._insert(statement)
                name = insert_name(self._target(statement).name, _sources(plan))
                yield self._text(plan, self._names.name_for(name, statement.source))
            case sql.CreateStream(query=sql.Query() as query):
                plan = self._plan(query)
                if self._is_fed_by(statement):
                    yield self._text(plan, statement.name)
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

    def _alone(self, statement: Explain) -> str:
        """Return the plan of the query in an EXPLAIN statement, which does not change the streams."""
        from watersmeet.sql import statements as sql
        from watersmeet.sql.query_names import insert_name, select_name

        assert isinstance(statement.query, sql.Query)
        plan = self._plan(statement.query)
        match statement.statement:
            case sql.InsertSelect() as inner:
                name = insert_name(self._target(inner).name, _sources(plan))
            case sql.CreateStream(name=stream):
                name = stream
            case inner:
                name = select_name(inner.source)
        return self._text(plan, name)

    def _text(self, plan: PhysicalPlan, name: str) -> str:
        """Return the plan, with the statistics of the last run of the query, if it has run."""
        from watersmeet.plan.explain import explain as plan_text

        return plan_text(plan, _last_counters(self._checkpoints / name))

    def _set_text(self, found: StatementSet) -> str:
        """Return the plan of queries that run as one."""
        from watersmeet.bind.statement_sets import plan_set
        from watersmeet.plan.explain import explain_set
        from watersmeet.sql.query_names import insert_name, set_name

        physical = plan_set(found, self._streams)
        self._checked(physical, physical.query.text.settings_positions)
        names = []
        for insert, plan in zip(found.inserts, physical.queries, strict=True):
            target = self._checked_target(insert, plan)
            names.append(self._names.name_for(insert_name(target.name, _sources(plan)), insert.source))
        targets = [insert.stream for insert in found.inserts]
        name = self._names.name_for(set_name(names), found.source)
        return explain_set(physical, targets, _last_counters(self._checkpoints / name))

    def _plan(self, query: Query) -> PhysicalPlan:
        from watersmeet.bind.planning import plan_query

        return self._checked(plan_query(query, self._streams), query.settings_positions)

    def _checked(self, plan: PhysicalPlan, positions: Mapping[str, Position]) -> PhysicalPlan:
        """Return the plan if its settings fit its streams, and those for late and evicted rows can store them."""
        from watersmeet.bind.side_streams import check_side_streams
        from watersmeet.plan.live_checks import check_live

        check_live(plan, positions)
        check_side_streams(plan.query.settings, self._streams, positions)
        return plan

    def _stored(self, statement: Historical | InsertHistorical | Explain) -> str:
        from watersmeet.bind.table_queries import explain_stored
        from watersmeet.sql import statements as sql

        inner = statement.statement if isinstance(statement, sql.Explain) else statement
        assert isinstance(inner, sql.Historical | sql.InsertHistorical)
        target = self._target(inner) if isinstance(inner, sql.InsertHistorical) else None
        return explain_stored(inner.query, self._streams, target)

    def _insert(self, statement: InsertSelect) -> PhysicalPlan:
        from watersmeet.bind.by_key import plan_insert

        plan = self._checked(
            plan_insert(statement, self._target(statement), self._streams), statement.query.settings_positions
        )
        self._checked_target(statement, plan)
        return plan

    def _checked_target(self, statement: InsertSelect, plan: PhysicalPlan) -> StreamDef:
        """Return the stream that a query feeds, if it can take the query's results."""
        from watersmeet.bind.insert_target import check_query

        target = self._target(statement)
        check_query(target, plan.query, statement)
        if plan.weighted:  # the connectors are slow to import
            from watersmeet.session.streams import check_corrections

            check_corrections(target, plan, statement)
        return target

    def _target(self, statement: InsertSelect | InsertHistorical) -> StreamDef:
        target = self._require(statement.stream, statement.position)
        if target.outside:
            raise UnsupportedError(
                f"{target.name} is an external table: queries can only look rows up in it", position=statement.position
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
        """Return whether CREATE STREAM … AS starts its query: with IF NOT EXISTS an existing stream stays."""
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
        """Add the stream that a query feeds; the harness derives the types of its columns."""
        from watersmeet.plan.lineage import derived_stream
        from watersmeet.testing.harness import Harness

        try:
            harness = Harness(self._streams, query)
        except BindError as error:
            raise UnsupportedError(
                f"the columns of {statement.name} cannot be derived without Spark",
                detail=error.message,
                hint="EXPLAIN the statements after it in `watersmeet sql`",
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


def _set_of(statement: Statement) -> StatementSet | None:
    """Return the statement set that a statement is, or that it explains."""
    from watersmeet.sql import statements as sql

    found = statement.statement if isinstance(statement, sql.Explain) else statement
    return found if isinstance(found, sql.StatementSet) else None


def _sources(plan: PhysicalPlan) -> list[str]:
    return [part.input.stream.name for part in plan.streams]


def _last_counters(checkpoint: Path) -> dict[str, int]:
    """Return the counters that the last run of a query left in its checkpoint; none if missing or damaged."""
    try:
        stored = json.loads((checkpoint / "counters.json").read_text(encoding="utf-8"))
        return {str(name): int(value) for name, value in stored.items()}
    except (OSError, ValueError, TypeError, AttributeError, ArithmeticError):
        return {}


def _check_options(stream: StreamDef, statement: CreateStream) -> None:
    """Check the connector and its options; the connectors, which are slow to import, are only loaded if needed."""
    from watersmeet.catalog.streams import EMBEDDED

    if stream.connector != EMBEDDED or stream.options:
        from watersmeet.session.streams import check_connector

        check_connector(stream, statement)
