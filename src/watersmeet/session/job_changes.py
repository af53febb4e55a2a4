"""Stopped queries of a job that go on otherwise: over other buckets, or as the queries of a changed text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeGuard

from watersmeet.catalog.streams import StreamDef
from watersmeet.connectors.console import Show
from watersmeet.errors import CatalogError, CheckpointError, did_you_mean
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.runtime.replace.switch import Replaced, Replacement, check_start
from watersmeet.runtime.rescale.switch import Rescaled, check_count
from watersmeet.session.frames import derived
from watersmeet.session.modes import in_mode
from watersmeet.session.queries import QueryTarget
from watersmeet.session.redefining import Definition, Redefinitions
from watersmeet.session.replacing import JobReplaced, planned_as_it_was, refuse_dropped
from watersmeet.session.rescaling import QueryStatement, check_same_operators, is_definition, with_buckets
from watersmeet.session.statement_plans import StatementPlans
from watersmeet.settings.query_settings import REAL_TIME
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import CreateStream, Statement

_Planned = tuple[QueryStatement, str, PhysicalPlan, list[QueryTarget]]


@dataclass(frozen=True, slots=True)
class JobChange:
    """A change of a job's queries, or of the one named ``query``; for ``checkpoint`` see ``Session.run``.

    ``show`` is how a query that prints would do so.
    """

    plans: StatementPlans
    checkpoint: str | None
    query: str | None
    show: Show
    real_time: bool

    def rescale(
        self, text: str, buckets: int, define: Callable[[Statement], object], *, dry_run: bool
    ) -> list[Rescaled]:
        """Give the queries other buckets, and ``define`` what they need."""
        check_count(buckets)
        names, found = [], []
        for statement in self._statements(text):
            if is_definition(statement):
                define(statement)
            elif isinstance(statement, QueryStatement):
                name, plan, targets = self.plans.named(statement)
                names.append(name)
                if self._is_meant(name):
                    if plan.query.settings.buckets == 1:
                        check_same_operators(name, plan, self.plans.named(with_buckets(statement, buckets))[1])
                    found.append(
                        self.plans.queries.rescale(
                            name, plan, targets, self.checkpoint, self.show, buckets, dry_run=dry_run
                        )
                    )
        self._require(found, names)
        return found

    def replace(self, text: str, wanted: Replacement) -> JobReplaced:
        """Let the queries go on as those of the text, over streams as it defines them."""
        check_start(wanted.start)
        streams = self.plans.streams
        redefined = Redefinitions(streams)
        try:
            with self.plans.queries.named_anew(kept=not wanted.dry_run):
                found = self._replaced(text, wanted, redefined)
            lines = tuple(redefined.lines(streams.catalog.get))
        finally:
            streams.redefine({})
        if not wanted.dry_run:
            redefined.commit()
        return JobReplaced(lines, tuple(found))

    def _statements(self, text: str) -> list[Statement]:
        return list(in_mode(parse(text), REAL_TIME if self.real_time else None))

    def _is_meant(self, name: str) -> bool:
        return self.query is None or self.query.lower() == name.lower()

    def _require(self, found: Sequence[object], names: Sequence[str]) -> None:
        """Raise ``CatalogError`` if no query of the job is meant."""
        if not found:
            what = "starts no query" if self.query is None else f"has no query {self.query}"
            hint = None if self.query is None else did_you_mean(self.query, names)
            raise CatalogError(f"the job {what}", hint=hint)

    def _replaced(self, text: str, wanted: Replacement, redefined: Redefinitions) -> list[Replaced]:
        plans, streams = self.plans, self.plans.streams
        statements, catalog = self._statements(text), streams.by_name()
        for statement in statements:
            if isinstance(statement, Definition) and is_definition(statement):
                redefined.take(statement)
        planned = list(map(partial(self._planned, redefined), filter(_starts_a_query, statements)))
        names = [name for _, name, _, _ in planned]
        refuse_dropped(redefined, catalog, plans.queries.said_in(self.checkpoint), names, streams.open_table)
        old = partial(planned_as_it_was, streams=streams.by_name(), open_table=streams.open_table)
        chosen = [each for each in planned if self._is_meant(each[1])]
        self._require(chosen, names)
        dry = [replace(wanted, dry_run=True)] if len(chosen) > 1 and not wanted.dry_run else []
        found: list[Replaced] = []
        # all are looked at before the first is changed
        for how in (*dry, wanted):
            found = [
                plans.queries.replace(name, plan, targets, self.checkpoint, self.show, statement.source, old, how)
                for statement, name, plan, targets in chosen
            ]
            if how in dry and wanted.start is None and (needs := [each for each in found if each.is_new_version]):
                raise CheckpointError(
                    f"{needs[0].query} needs a new version: nothing was changed",
                    hint="say where it begins, with --from; --query replaces one query alone",
                )
        return found

    def _planned(self, redefined: Redefinitions, statement: QueryStatement) -> _Planned:
        if isinstance(statement, CreateStream):
            redefined.feed(self._fed_again(statement), statement)
        return statement, *self.plans.named(statement)

    def _fed_again(self, statement: CreateStream) -> StreamDef:
        """A stream that its own query feeds, as the query would feed it now; its columns must stay."""
        assert statement.query is not None  # it is fed
        streams = self.plans.streams
        known = streams.require(statement.name, statement)
        found = derived(streams, statement, self.plans.plan(statement.query))
        if not known.derived or (found.columns, found.connector) != (known.columns, known.connector):
            raise CatalogError(
                f"{known.name} would have other columns, or other options, than the stream that others read",
                detail=", ".join(f"{each.name} {each.type}" for each in known.columns),
                hint="keep its columns; or create a stream of another name",
                position=statement.position,
            )
        return found


def _starts_a_query(statement: Statement) -> TypeGuard[QueryStatement]:
    return isinstance(statement, QueryStatement) and not is_definition(statement)
