"""The queries of a job that go on as other queries (``watersmeet replace``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from watersmeet.bind.by_key import plan_insert
from watersmeet.bind.planning import plan_query
from watersmeet.bind.statement_sets import plan_set
from watersmeet.catalog.streams import StreamDef
from watersmeet.errors import CatalogError, WatersmeetError
from watersmeet.lookup.tables import OpenTable
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.runtime.replace.switch import Replaced
from watersmeet.runtime.said import Said
from watersmeet.session.modes import in_mode
from watersmeet.session.redefining import Redefinitions, dropped_columns
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import CreateStream, InsertSelect, Select, StatementSet


@dataclass(frozen=True, slots=True)
class JobReplaced:
    """What was done, or would be: to streams, in words, and to each query."""

    definitions: tuple[str, ...]
    queries: tuple[Replaced, ...]


def planned_as_it_was(said: Said, streams: Mapping[str, StreamDef], open_table: OpenTable) -> PhysicalPlan | None:
    """Plan a query as it was when it last ran; None if that is not possible any more.

    Its streams have the columns of then, and the options of now, by which they are read.
    """
    known = {
        name: then.model_copy(update={"options": streams[name].options, "indexes": streams[name].indexes})
        for name, then in said.streams.items()
        if name in streams
    }
    if len(known) < len(said.streams):
        return None
    try:
        return _plan(said, {**streams, **known}, open_table)
    except WatersmeetError:
        return None  # this version of Watersmeet refuses it: then nothing can be compared


def refuse_dropped(
    redefined: Redefinitions,
    catalog: Mapping[str, StreamDef],
    queries: Iterator[tuple[str, Said]],
    job: Sequence[str],
    open_table: OpenTable,
) -> None:
    """Raise ``CatalogError`` if a query outside of the job still reads a column that a stream no longer has."""
    changes = {
        name: (stream, dropped)
        for name, stream in redefined.changed.items()
        if name in catalog and (dropped := dropped_columns(catalog[name], stream))
    }
    if not changes:
        return
    for query, said in queries:
        touched = [each for each in changes if each in said.streams]
        if not touched or query.lower() in {each.lower() for each in job}:
            continue
        then = {**catalog, **said.streams}
        now = {**then, **{name: changes[name][0] for name in touched}}
        try:
            _plan(said, then, open_table)
        except WatersmeetError:
            continue  # it cannot run as it is, whatever becomes of the columns
        try:
            _plan(said, now, open_table)
        except WatersmeetError as error:
            stream, dropped = changes[touched[0]]
            raise CatalogError(
                f"{stream.name} cannot lose {', '.join(dropped)}: query {query} reads it",
                detail=error.message,
                hint=f"replace {query} first by a query that does without, or keep the column",
                position=redefined.positions.get(stream.name.lower()),
            ) from None


def _plan(said: Said, streams: Mapping[str, StreamDef], open_table: OpenTable) -> PhysicalPlan:
    (statement,) = in_mode(parse(said.text), said.mode)
    if isinstance(statement, StatementSet):
        return plan_set(statement, streams, open_table)
    assert isinstance(statement, InsertSelect | Select | CreateStream)  # nothing else starts a query
    assert statement.query is not None
    if isinstance(statement, InsertSelect) and (target := streams.get(statement.stream.lower())) is not None:
        return plan_insert(statement, target, streams, open_table)
    return plan_query(statement.query, streams, open_table)
