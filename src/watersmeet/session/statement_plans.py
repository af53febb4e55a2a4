"""Statements to plans: what a statement starts, under which name, and where its results go."""

from __future__ import annotations

from watersmeet.bind.by_key import plan_insert
from watersmeet.bind.insert_target import check_query
from watersmeet.bind.planning import plan_query
from watersmeet.bind.statement_sets import plan_set
from watersmeet.bind.table_queries import explain_stored
from watersmeet.catalog.streams import FRAME, StreamDef
from watersmeet.connectors import registry
from watersmeet.errors import UnsupportedError
from watersmeet.plan.explain import explain, explain_set, headlines
from watersmeet.plan.operator_tree import operator_tree
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.session.queries import Queries, QueryTarget, name_of_insert
from watersmeet.session.rescaling import QueryStatement
from watersmeet.session.results import Plan
from watersmeet.session.streams import Streams, check_corrections
from watersmeet.sql.query_names import select_name, set_name
from watersmeet.sql.statements import (
    CreateStream,
    Historical,
    InsertHistorical,
    InsertSelect,
    Query,
    Select,
    StatementSet,
)

_PRINT = StreamDef(name="print", columns=(), connector="print")


class StatementPlans:
    """Plans statements over the streams of a session."""

    def __init__(self, streams: Streams, queries: Queries) -> None:
        self.streams = streams
        self.queries = queries

    def plan(self, query: Query) -> PhysicalPlan:
        """The plan of a query."""
        physical = plan_query(query, self.streams.by_name(), self.streams.open_table)
        self.streams.check_settings(physical, query.settings_positions)
        return physical

    def plan_insert(self, statement: InsertSelect) -> PhysicalPlan:
        """The plan of a query that feeds a stream."""
        streams = self.streams
        physical = plan_insert(statement, self.target(statement), streams.by_name(), streams.open_table)
        streams.check_settings(physical, statement.query.settings_positions)
        return physical

    def plan_set(self, statement: StatementSet) -> PhysicalPlan:
        """The plan of several queries that run as one."""
        physical = plan_set(statement, self.streams.by_name(), self.streams.open_table)
        self.streams.check_settings(physical, physical.query.text.settings_positions)
        return physical

    def named(self, statement: QueryStatement) -> tuple[str, PhysicalPlan, list[QueryTarget]]:
        """The name, the plan and the targets of what a statement starts."""
        match statement:
            case InsertSelect():
                plan = self.plan_insert(statement)
                target = self.checked_target(statement, plan)
                name = self.queries.insert_name(target, plan, statement.source)
                return name, plan, [QueryTarget(name, target, statement.columns)]
            case StatementSet():
                plan = self.plan_set(statement)
                inserts = list(zip(statement.inserts, plan.queries, strict=True))
                fed = [self.checked_target(insert, query) for insert, query in inserts]
                targets = [
                    QueryTarget(self.queries.insert_name(target, query, insert.source), target, insert.columns)
                    for (insert, query), target in zip(inserts, fed, strict=True)
                ]
                name = self.queries.set_name([target.query for target in targets], statement.source)
                return name, plan, targets
            case Select():
                name = select_name(statement.source)
                return name, self.plan(statement.query), [QueryTarget(name, _PRINT)]
            case CreateStream():
                assert statement.query is not None  # other streams are defined, and start nothing
                stream = self.streams.require(statement.name, statement)
                return stream.name, self.plan(statement.query), [QueryTarget(stream.name, stream)]

    def checked_target(self, statement: InsertSelect, plan: PhysicalPlan) -> StreamDef:
        """The stream that a query writes to, if it can take the query's results."""
        target = self.target(statement)
        check_query(target, plan.query, statement)
        check_corrections(target, plan, statement)
        return target

    def target(self, statement: InsertSelect | InsertHistorical) -> StreamDef:
        """The stream that a query writes to; ``UnsupportedError`` if that is not possible."""
        target = self.streams.require_target(statement)
        if target.derived:
            raise UnsupportedError(
                f"{target.name} is fed by its own query (CREATE STREAM … AS)", position=statement.position
            )
        if target.connector == FRAME:
            raise UnsupportedError(
                f"{target.name} is a registered DataFrame: no rows can be written to it",
                position=statement.position,
            )
        return target

    def explained(
        self, statement: Select | InsertSelect | CreateStream | Historical | InsertHistorical | StatementSet
    ) -> Plan:
        """EXPLAIN of a statement; with the counters of its checkpoint, if it has one."""
        if isinstance(statement, StatementSet):
            return self._explained_set(statement)
        if isinstance(statement, Historical | InsertHistorical):
            target = self.target(statement) if isinstance(statement, InsertHistorical) else None
            if target is not None:
                registry.check_sink(target, changelog=False)
            return Plan(explain_stored(statement.query, self.streams.by_name(), target))
        assert statement.query is not None
        if isinstance(statement, InsertSelect):
            physical, target = self.plan_insert(statement), self.target(statement)
            check_corrections(target, physical, statement)
            name = name_of_insert(target, physical)
        else:
            physical = self.plan(statement.query)
            name = statement.name if isinstance(statement, CreateStream) else select_name(statement.source)
        text = explain(physical, self.queries.checkpoint(name, None).read_counters())
        return Plan(text, operator_tree(physical), headlines(physical))

    def _explained_set(self, statement: StatementSet) -> Plan:
        plan = self.plan_set(statement)
        inserts = list(zip(statement.inserts, plan.queries, strict=True))
        names = [name_of_insert(self.checked_target(insert, query), query) for insert, query in inserts]
        counters = self.queries.checkpoint(set_name(names), None).read_counters()
        text = explain_set(plan, [insert.stream for insert in statement.inserts], counters)
        return Plan(text, operator_tree(plan), headlines(plan))
