"""``watersmeet explain``: how the queries of a script would run, without Spark and without running any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from watersmeet.cli.options import DEFAULT_WORKSPACE, Workspace, read_script
from watersmeet.errors import ConfigError, UnsupportedError

if TYPE_CHECKING:
    from watersmeet.catalog import StreamDef
    from watersmeet.sql.statements import CreateStream, Query, Statement

Script = Annotated[
    str | None, typer.Argument(metavar="FILE", help="A file of SQL statements, or - for standard input.")
]
Text = Annotated[str | None, typer.Option("-e", "--execute", metavar="SQL", help="Statements in place of a file.")]


def explain(script: Script = None, execute: Text = None, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Print the plan of each query: windows, keys, bounds of the state, where each condition is tested."""
    if (script is None) == (execute is None):
        raise ConfigError("explain takes either a file or -e 'SQL'")
    text = execute if execute is not None else read_script(script or "")
    plans = list(explain_script(text, workspace))
    if not plans:
        raise ConfigError("there is no query here", hint="give a SELECT, after the CREATE STREAM statements it needs")
    typer.echo("\n\n".join(plans))


def explain_script(text: str, workspace: Path) -> Iterator[str]:
    """The plan of each query in a script.

    Queries see the streams of the workspace and those that the script itself creates, which are not kept.
    """
    from watersmeet.catalog import Catalog
    from watersmeet.plan.explain import explain as plan_text
    from watersmeet.plan.physical import plan
    from watersmeet.sql.bind import bind
    from watersmeet.sql.define import define_stream
    from watersmeet.sql.parse import parse
    from watersmeet.sql.statements import CreateStream

    streams = {stream.name.lower(): stream for stream in Catalog(workspace).streams().values()}
    for statement in parse(text):
        if isinstance(statement, CreateStream) and statement.query is None:
            stream = define_stream(statement)
            streams[stream.name.lower()] = stream
            continue
        query = _query_of(statement)
        if query is None:
            continue
        yield plan_text(plan(bind(query, streams)))
        if isinstance(statement, CreateStream):
            stream = _derived(statement, query, streams)
            streams[stream.name.lower()] = stream


def _query_of(statement: Statement) -> Query | None:
    from watersmeet.sql.statements import CreateStream, Explain, InsertSelect, Select

    match statement:
        case Explain() | Select() | InsertSelect() | CreateStream():
            return statement.query
    return None


def _derived(statement: CreateStream, query: Query, streams: Mapping[str, StreamDef]) -> StreamDef:
    """The stream that a query feeds; the harness works out the types of its columns."""
    import duckdb

    from watersmeet.plan.lineage import derived_stream
    from watersmeet.testing.harness import Harness

    try:
        harness = Harness(streams, query)
        columns = list(zip(harness.column_names, harness.column_types, strict=True))
    except duckdb.Error as error:
        raise UnsupportedError(
            f"the columns of {statement.name} cannot be worked out without Spark",
            detail=str(error).splitlines()[0],
            hint="EXPLAIN queries over it in `watersmeet sql`",
            position=statement.position,
        ) from None
    return derived_stream(statement.name, harness.plan.query, columns, statement.source)
