"""The queries of a job that get another number of buckets."""

from __future__ import annotations

from dataclasses import replace

from watersmeet.errors import UnsupportedError
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.sql.statements import (
    CreateIndex,
    CreateStream,
    CreateTable,
    DropIndex,
    InsertSelect,
    Query,
    Select,
    Statement,
    StatementSet,
)

QueryStatement = CreateStream | InsertSelect | Select | StatementSet
_BUCKETS = "buckets"


def is_definition(statement: Statement) -> bool:
    """Whether a statement defines what queries need, and may be carried out again without one being started."""
    is_stream = isinstance(statement, CreateStream) and statement.query is None
    return is_stream or isinstance(statement, CreateTable | CreateIndex | DropIndex)


def with_buckets(statement: QueryStatement, buckets: int) -> QueryStatement:
    """The statement with this number of buckets, if its SETTINGS name one."""
    if isinstance(statement, StatementSet):
        inserts = (replace(each, query=_with_buckets(each.query, buckets)) for each in statement.inserts)
        return replace(statement, inserts=tuple(inserts))
    query = statement.query
    return statement if query is None else replace(statement, query=_with_buckets(query, buckets))


def _with_buckets(query: Query, buckets: int) -> Query:
    return replace(query, settings={**query.settings, _BUCKETS: buckets}) if _BUCKETS in query.settings else query


def check_same_operators(name: str, now: PhysicalPlan, then: PhysicalPlan) -> None:
    """Raise ``UnsupportedError`` if a query runs otherwise with another number of buckets."""
    if [repr(each.kernel) for each in now.operators] != [repr(each.kernel) for each in then.operators]:
        before, after = (", ".join(each.name for each in plan.operators) for plan in (now, then))
        raise UnsupportedError(
            f"{name} was made for one bucket (SETTINGS buckets = 1), and would run otherwise with more",
            detail=f"its operators are {before}; with more buckets they would be {after}",
            hint="start it with more buckets on a new checkpoint",
        )
