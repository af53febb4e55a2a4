"""Results of a query as the right side of a join as of a time.

    final results with an event time      rows, as those of an append-only stream; windows that have ended are versions
                                          of what else they are grouped by
    a versioned view (FOR SYSTEM_TIME)    the rows below it (versioned_views.py)
    results that are corrected            refused: a correction has no time from which on it holds (asof.py)

The query is asked for final results, whatever the query around it emits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from watersmeet.bind.inputs import Inputs
from watersmeet.bind.nested_joins import repeated
from watersmeet.bind.relations import Relation
from watersmeet.bind.results import results_of
from watersmeet.bind.rewriting import column_of
from watersmeet.bind.scope import Scope
from watersmeet.bind.subqueries import Ctes, ctes_of, is_inlined, nested_query, reads_one_stream
from watersmeet.bind.versioned_views import VersionedView, versioned_view
from watersmeet.columns import TP_DELTA
from watersmeet.errors import Position, UnsupportedError
from watersmeet.expressions.nodes import SystemTime
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.windows import last_before_end
from watersmeet.plan.closing import Closing, closings_of
from watersmeet.plan.lineage import event_time_output
from watersmeet.plan.logical.query import GroupKey, LogicalQuery, OutputColumn
from watersmeet.plan.logical.tree import Input, Leaf
from watersmeet.plan.passes import optimize

if TYPE_CHECKING:  # a statement has selects, whose joins have right sides
    from watersmeet.bind.statement import Statement

_TIME, _KEY, _TEST = "$time", "$key", "$test"


@dataclass(frozen=True, slots=True)
class _Versions:
    """The right side of a join as of a time, and what is tested on the row that was picked."""

    leaf: Leaf
    relation: Relation
    tests: tuple[exp.Expr, ...] = ()


def is_query(source: exp.Expr, ctes: Ctes) -> bool:
    """Whether a relation of FROM is a query that does more than filter and name the rows of one stream."""
    below = nested_query(source, ctes)
    if below is None or not reads_one_stream(below, ctes) or not is_inlined(below):
        return below is not None
    is_value = any(item.find(exp.Select) is not None for item in below.expressions)
    return is_value or is_query(below.args["from_"].this, {**ctes, **ctes_of(below)})


def bind_versions(
    statement: Statement, names: Inputs, source: exp.Expr, version: SystemTime | None, scope: Scope, ctes: Ctes
) -> tuple[Leaf, tuple[exp.Expr, ...]]:
    """Resolve a query on the right side; return its input, and what is tested on the row that was picked.

    ``version`` is FOR SYSTEM_TIME AS OF, where that is the clause. Afterwards the query's columns are in scope.
    """
    alias, node = source.alias_or_name, nested_query(source, ctes)
    assert node is not None
    if scope.relation(alias) is not None:
        raise repeated(alias, source)
    binder = _VersionBinder(statement, names, node, alias, ctes)
    if version is None:
        found = binder.rows()
    else:
        found = binder.versions_of_table(names_time=version.args.get("versioned_on") is not None)
    found.relation.alias = alias
    scope.relations.append(found.relation)
    return found.leaf, found.tests


@dataclass(frozen=True, slots=True)
class _VersionBinder:
    """Makes the query ``node``, with the name ``alias``, an input among ``names``."""

    statement: Statement
    names: Inputs
    node: exp.Expr
    alias: str
    ctes: Ctes

    def versions_of_table(self, *, names_time: bool) -> _Versions:
        """For FOR SYSTEM_TIME AS OF, which with ``names_time`` says by which time (VERSIONED ON).

        Raises ``UnsupportedError`` for results that would hold before they are known.
        """
        found = self._tried()
        if len(found) == 1 and versioned_view(found[0]) is not None:
            view = versioned_view(self._final().query(self.node, self.ctes, inner=True))
            assert view is not None
            return self._adopted(view) if self._is_adopted(view) else self._computed(view)
        if len(found) > 1 or entity_of(found[0]) is None:
            return self.rows()
        query = self._final().finished(self._final().query(self.node, self.ctes, inner=True))
        query, names = with_outputs(query, _KEY, entity_of(query) or ())
        if not names_time and query.aggregation is not None:
            query = self._with_time(query)
        return self._keyed(query, names)

    def rows(self) -> _Versions:
        """For MATCH_CONDITION."""
        return _Versions(*self._final().results(self.node, self.alias, self.ctes, None, self.names))

    # -- queries ---------------------------------------------------------------------------------------------------

    def _final(self) -> Statement:
        return self.statement.final()

    def _tried(self) -> list[LogicalQuery]:
        """The queries, resolved without a trace."""
        return self._final().apart().queries(self.node, self.ctes)

    def _keyed(self, query: LogicalQuery, key: Sequence[str], tests: int = 0) -> _Versions:
        """The results of a query with hidden outputs; rows of one ``key`` are versions of one."""
        stream, results = results_of([query], self.alias)
        leaf, relation = self.names.add_results(stream, results, self.alias, self._position)
        leaf = Leaf(replace(leaf.input, versions_of=tuple(key)))
        self.names.replace(leaf)
        relation.columns = {name: each for name, each in relation.columns.items() if not name.startswith("$")}
        tested = tuple(column_of(leaf.input.physical(f"{_TEST}{place}")) for place in range(tests))
        return _Versions(leaf, relation, tested)

    @property
    def _position(self) -> Position | None:
        return position_of(self.node)

    # -- versioned views -------------------------------------------------------------------------------------------

    def _is_adopted(self, view: VersionedView) -> bool:
        """Whether the rows of a view are those of an input, so that it can be an input here."""
        root = view.rows.root
        if not isinstance(root, Leaf) or root.input.windows or root.input.changes:
            return False
        read = [*(each.expression for each in view.outputs), *view.tests, *view.rows.filters]
        if any(column.name == TP_DELTA for each in read for column in each.find_all(exp.Column)):
            return False
        return all(isinstance(each, exp.Column) for each in view.key)

    def _adopted(self, view: VersionedView) -> _Versions:
        root = view.rows.root
        assert isinstance(root, Leaf)
        key = tuple(view.rows.columns[each.name].column for each in view.key)
        input = replace(root.input, filters=(*root.input.filters, *view.rows.filters), versions_of=key)
        relation = Relation(self.alias, {each.name: each.expression for each in view.outputs})
        return _Versions(self.names.adopt(input, view.rows.columns), relation, view.tests)

    def _computed(self, view: VersionedView) -> _Versions:
        """The rows of a view as results, with its key and its tests computed."""
        key = [OutputColumn(f"{_KEY}{place}", each) for place, each in enumerate(view.key)]
        tests = [OutputColumn(f"{_TEST}{place}", each) for place, each in enumerate(view.tests)]
        outputs = (OutputColumn(_TIME, view.time), *view.outputs, *key, *tests)
        return self._keyed(replace(view.rows, outputs=outputs), [each.name for each in key], len(tests))

    # -- results ---------------------------------------------------------------------------------------------------

    def _with_time(self, query: LogicalQuery) -> LogicalQuery:
        """A query over windows, dated by a bound that is selected or grouped by, and not before the window's end."""
        optimized = optimize(query)
        time = event_time_output(optimized)
        known = [each for each in closings_of(optimized) if _is_complete(each)]
        names = {each.expression.name: each.name for each in query.outputs if isinstance(each.expression, exp.Column)}
        if not list(closings_of(optimized)) or any(time and names.get(each.key.name) == time[0] for each in known):
            return query
        if not known:
            raise UnsupportedError(
                f"versions of {self.alias} would hold from the beginning of their windows on, when they are not known",
                hint="add window_end to GROUP BY; or name the time: VERSIONED ON window_start",
                position=self._position,
            )
        latest = min(known, key=lambda each: each.width)
        return replace(query, outputs=(OutputColumn(_TIME, column_of(latest.key.name)), *query.outputs))


def entity_of(query: LogicalQuery) -> tuple[exp.Expr, ...] | None:
    """What results of windows are versions of: what the windows are grouped by beside their bounds.

    The expressions are over the columns of the results' query; None where results are no windows.
    """
    if query.is_plain and isinstance(query.root, Leaf) and query.root.input.results is not None:
        return _entity_below(query.root.input)
    if not list(closings_of(optimize(query))):
        return None
    if query.aggregation is not None:
        return tuple(column_of(key.name) for key in query.aggregation.keys if not _is_of_window(key, query))
    over = query.over
    if over is None or over.limit != 1 or over.skipped or over.calls[0].function != "row_number":
        return None
    return tuple(key.expression for key in over.partition if not _is_of_window(key, query))


def _entity_below(input: Input) -> tuple[exp.Expr, ...] | None:
    assert input.results is not None
    if len(input.results.queries) != 1 or input.windows:
        return None
    (below,) = input.results.queries
    entity = entity_of(below)
    if entity is None:
        return None
    names = [next((each.name for each in below.outputs if each.expression == part), None) for part in entity]
    for name, part in zip(names, entity, strict=True):
        if name is None:
            keys = {key.name: key.expression for key in (below.aggregation.keys if below.aggregation else ())}
            raise UnsupportedError(
                "results of windows are versions of what they are grouped by, and"
                f" {keys.get(part.name, part).sql(dialect='spark')} is not selected",
                hint="select it in each subquery",
                position=below.text.position,
            )
    return tuple(column_of(input.physical(name)) for name in names if name is not None)


def with_outputs(
    query: LogicalQuery, prefix: str, expressions: Sequence[exp.Expr]
) -> tuple[LogicalQuery, tuple[str, ...]]:
    """The query with outputs for expressions, where it has none, and the names of them all."""
    outputs, names = list(query.outputs), []
    for place, expression in enumerate(expressions):
        known = next((each.name for each in outputs if each.expression == expression), None)
        if known is None:
            known = f"{prefix}{place}"
            outputs.append(OutputColumn(known, expression))
        names.append(known)
    return replace(query, outputs=tuple(outputs)), tuple(names)


def _is_complete(closing: Closing) -> bool:
    """Whether a group is final soon after the time that a key has: it is no beginning of a window."""
    return closing.width <= last_before_end(closing.unit)


def _is_of_window(key: GroupKey, query: LogicalQuery) -> bool:
    """Whether a key is a bound of a window or an event time, or made of those alone."""
    read = [query.columns[column.name] for column in key.expression.find_all(exp.Column)]
    inputs = query.inputs
    return bool(read) and all(
        inputs[each.input].window_of(each.column) is not None or inputs[each.input].distance_of(each.column) is not None
        for each in read
    )
