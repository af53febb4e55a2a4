"""One select, resolved: its FROM as a tree of joins, its WHERE, and the columns that it returns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from watersmeet.bind.as_results import now_of_results, outputs_of
from watersmeet.bind.conditions import bind_condition, with_where
from watersmeet.bind.explode import (
    add_relation,
    add_values,
    bind_array,
    conditions_on,
    labels_of,
    leaf_for,
    of_join,
    with_leaf,
)
from watersmeet.bind.generators import (
    Generator,
    generator_in_from,
    is_generator,
    refuse_joins_after_views,
    with_generator_in_from,
)
from watersmeet.bind.inputs import ELEMENT, POSITION, Inputs
from watersmeet.bind.join_kinds import join_kind
from watersmeet.bind.joined_subqueries import with_scalars, with_tests
from watersmeet.bind.joins import bind_join
from watersmeet.bind.nested_joins import in_parentheses, is_nested, refuse_alias, refuse_repeated, repeated
from watersmeet.bind.outputs import output_columns, refuse_clauses
from watersmeet.bind.relations import Relation
from watersmeet.bind.scalars import scalar_subqueries
from watersmeet.bind.scope import Scope
from watersmeet.bind.subqueries import (
    Ctes,
    ctes_of,
    is_inlined,
    nested_query,
    reads_one_stream,
    refuse_column_names,
    refuse_inner_order,
    where_terms,
)
from watersmeet.bind.versions import bind_versions, is_query
from watersmeet.bind.windows import bind_window_table, repeats_changes
from watersmeet.errors import UnsupportedError
from watersmeet.expressions.nodes import WindowTable
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.plan.logical.query import OutputColumn
from watersmeet.plan.logical.tree import Join, Leaf, Node
from watersmeet.plan.passes.push_filters import goes_down, reads_delta

if TYPE_CHECKING:  # a statement has selects, in which its other queries stand
    from watersmeet.bind.statement import Statement


class _NotInlinedError(UnsupportedError):
    """A subquery is a query of its own, although it only joins.

    Its WHERE tests the padded side of an outer join, so that it stands above that join; or the rows that it explodes
    are results.
    """


@dataclass(slots=True)
class Bound:
    """A bound select: its tree, its scope, the columns it returns, and the conditions on its results."""

    node: Node
    scope: Scope
    outputs: list[OutputColumn]
    filters: list[exp.Expr]


class SelectBinder:
    """Resolves the selects of one query, which nest in FROM, WHERE and CTEs; their streams become its inputs."""

    def __init__(self, statement: Statement) -> None:
        self.statement = statement
        self.names = Inputs(statement.streams, statement.aliases)

    def select(self, select: exp.Select, outer: Scope | None, ctes: Ctes, *, nested: bool = False) -> Bound:
        """Resolve a select and everything in it; the conditions of a nested one become part of its tree."""
        refuse_clauses(select)
        select = with_generator_in_from(select)
        ctes = {**ctes, **ctes_of(select)}
        scope = Scope(outer=outer)
        return self.above(select, self.from_clause(select, scope, ctes), scope, ctes, nested=nested)

    def apart(self) -> SelectBinder:
        """A binder with which names can be looked up without a trace in this one's query."""
        return SelectBinder(self.statement.apart())

    def above(self, select: exp.Select, node: Node, scope: Scope, ctes: Ctes, *, nested: bool = False) -> Bound:
        """Resolve what stands over FROM: WHERE, the SELECT list and their subqueries."""
        select, node = with_scalars(self, select, node, scope, ctes)
        where = select.args.get("where")
        terms = list(where_terms(where.this if where else None))
        conditions = [_any(bind_condition(each, scope) for each in term.conditions) for term in terms if not term.tests]
        if nested:
            if not all(goes_down(node, each, self.names.columns) for each in conditions if not reads_delta(each)):
                raise _NotInlinedError("the condition stands above a join")
            node, conditions = with_where(node, conditions), []
        for term in terms:
            if term.tests:
                node = with_tests(self, node, term, scope, ctes)
        return Bound(node, scope, output_columns(select, scope), conditions)

    def from_clause(self, select: exp.Select, scope: Scope, ctes: Ctes) -> Node:
        """Resolve FROM; afterwards its relations are in scope."""
        start = select.args.get("from_") or select.args.get("from")
        if start is None:
            raise UnsupportedError("a query needs FROM and a stream", position=position_of(select))
        if (first := generator_in_from(start.this)) is not None:
            raise UnsupportedError(
                f"{first.text} makes rows of a stream's rows, and no stream stands before it",
                hint=f"write FROM a stream, {first.text}; to test the elements of an array, WHERE"
                " exists(items, item -> …)",
                position=position_of(start.this),
            )
        refuse_joins_after_views(select)
        node = self._joined(self._relation(start.this, scope, ctes), select, scope, ctes)
        for view in select.args.get("laterals") or ():
            generator = generator_in_from(view)
            assert generator is not None
            node = self._exploded(node, generator, scope)
        return node

    def _joined(self, node: Node, owner: exp.Expr, scope: Scope, ctes: Ctes) -> Node:
        """Resolve the joins that follow a first relation: those of FROM, or of parentheses in it."""
        for join in owner.args.get("joins") or ():
            if (generator := generator_in_from(join.this)) is not None:
                node = self._exploded(node, of_join(join, generator), scope)
                node = with_where(node, conditions_on(join, scope))
            else:
                node = self._join(node, join, scope, ctes)
        return node

    def _exploded(self, node: Node, generator: Generator, scope: Scope) -> Node:
        """Resolve a generator over the tree before it, which gets a row for each element; it is in scope then."""
        if generator.values:
            add_values(generator, scope, self.names)
            return node
        array = bind_array(generator, scope, self.names)
        leaf = leaf_for(array.expression, node, self.names)
        if leaf is None:
            leaf = node = self._as_results(node, generator, scope)
            array = bind_array(generator, scope, self.names)
        name = (generator.alias or "explode").removeprefix("$")
        labels = (POSITION, ELEMENT) if array.numbered else labels_of(generator, array.of)
        leaf, found = self.names.add_explode(
            leaf, array.expression, array.type, name, generator.text, labels, outer=generator.outer
        )
        add_relation(generator, array.of, array.elements(found), scope)
        return with_leaf(node, leaf)

    def _as_results(self, node: Node, generator: Generator, scope: Scope) -> Leaf:
        """Make a query of its own of the tree so far, whose results are an input then."""
        if len(node.inputs) < len(self.names.inputs):
            raise _NotInlinedError(
                f"{generator.text} is over rows that change, or that a join pads or picks; here this needs a subquery",
                hint="write (SELECT …, item FROM … LATERAL VIEW explode(items) t AS item) in its place",
                position=position_of(generator.call),
            )
        outputs, places = outputs_of(scope)
        query = self.statement.below(self, generator.call, Bound(node, scope, outputs, []))
        self.names = Inputs(self.statement.streams, self.statement.aliases)
        leaf, relation = self.statement.add_results([query], scope.relations[0].alias, generator.call, self.names)
        now_of_results(scope, places, relation)
        return leaf

    def _join(self, left: Node, join: exp.Join, scope: Scope, ctes: Ctes) -> Join:
        kind, mirrored = join_kind(join)
        before = list(scope.relations)
        source, version = join.this, join.this.args.get("version")
        if version is not None:
            source = source.copy()  # a statement may be bound again
            source.set("version", None)
        right: Node
        tests: tuple[exp.Expr, ...] = ()
        if (version is not None or join.args.get("match_condition")) and is_query(source, ctes):
            right, tests = bind_versions(self.statement, self.names, source, version, scope, ctes)
        else:
            right = self._relation(source, scope, ctes)
        node = Join(left, right, kind, position=position_of(join), mirrored=mirrored, tests=tests)
        return bind_join(node, join, version, before, scope, self.names)

    def _relation(self, source: exp.Expr, scope: Scope, ctes: Ctes) -> Node:
        """Resolve one side of a join; afterwards its relations are in scope."""
        if not is_nested(source):
            return self.relation_of(source, scope, ctes)
        inner = Scope(outer=scope.outer)  # conditions in parentheses read what stands in them
        if in_parentheses(source):
            refuse_alias(source)
            node = self._relation(source.this, inner, ctes)
        else:
            node = self.relation_of(source, inner, ctes)
        node = self._joined(node, source, inner, ctes)
        refuse_repeated(inner.relations, scope, source)
        scope.relations += inner.relations
        scope.shared += inner.shared
        return node

    def relation_of(self, source: exp.Expr, scope: Scope, ctes: Ctes) -> Node:
        """Resolve a stream, a name of WITH, a subquery or a window function in FROM; afterwards it is in scope."""
        alias = source.alias_or_name
        if scope.relation(alias) is not None:
            raise repeated(alias, source)
        if not is_generator(source.this):
            refuse_column_names(source)
        if source.args.get("version") is not None:
            raise UnsupportedError(
                "FOR SYSTEM_TIME AS OF is allowed only on the right side of a JOIN", position=position_of(source)
            )
        if isinstance(source, exp.Table) and isinstance(source.this, WindowTable):
            return self._windowed(source.this, source, scope, ctes)
        if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Select | exp.SetOperation):
            return self._subselect(source.this, alias, scope, ctes, source)
        if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
            makes_rows = isinstance(source, exp.Lateral | exp.Table) and is_generator(source.this)
            raise UnsupportedError(
                f"{plain_sql(source)} is not supported in FROM",
                hint="write FROM a stream, LATERAL explode(items) AS t(item)" if makes_rows else "name a stream",
                position=position_of(source),
            )
        if (cte := ctes.get(source.name.lower())) is not None and not source.db:
            return self._subselect(cte, alias, scope, ctes, source)
        leaf, found = self.names.add(source, alias)
        scope.relations.append(found)
        return leaf

    def _windowed(self, table: WindowTable, source: exp.Expr, scope: Scope, ctes: Ctes) -> Leaf:
        """Resolve TUMBLE, HOP or CUMULATE: the relation in it, whose rows get the columns of their windows."""
        if table.args["name"] == "SESSION":
            found, relation = self.statement.sessions(table, source, ctes, self.names)
            scope.relations.append(relation)
            return found
        inner, given = Scope(), table.this.copy()
        if source.alias:
            given.set("alias", exp.TableAlias(this=exp.to_identifier(source.alias)))
        below = nested_query(given, ctes)
        if below is None or reads_one_stream(below, ctes):
            before = self.names.state()
            node: Node = self.relation_of(given, inner, ctes)
            (relation,) = inner.relations
            if repeats_changes(table, node):
                self.names.restore(before)
                node, relation = self.statement.changes_to_window(table, given, ctes, self.names)
        else:  # windows are of one input: of what the query returns
            node, relation = self.statement.results(below, given.alias_or_name, ctes, None, self.names)
        leaf = bind_window_table(table, node, relation, self.names)
        scope.relations.append(relation)
        return leaf

    def _subselect(self, select: exp.Expr, alias: str, scope: Scope, ctes: Ctes, source: exp.Expr) -> Node:
        # what a subquery's value is compared with may be padded, which only the WHERE of a query of its own may test
        if not is_inlined(select) or any(True for _ in scalar_subqueries(select.args.get("where"))):
            around = source.find_ancestor(exp.Select)
            where = around.args.get("where") if around is not None else None
            return self._own_query(select, alias, scope, ctes, where.this if where else None)
        assert isinstance(select, exp.Select)
        before = self.names.state()
        try:
            bound = self.select(select, None, ctes, nested=True)
        except _NotInlinedError:
            self.names.restore(before)
            return self._own_query(select, alias, scope, ctes, None)
        refuse_inner_order(select)
        scope.relations.append(Relation(alias, {column.name: column.expression for column in bound.outputs}))
        return bound.node

    def _own_query(self, select: exp.Expr, alias: str, scope: Scope, ctes: Ctes, condition: exp.Expr | None) -> Leaf:
        """Resolve a subquery as a query of its own, whose results are an input here."""
        leaf, found = self.statement.results(select, alias, ctes, condition, self.names)
        found.alias = alias
        scope.relations.append(found)
        return leaf


def _any(conditions: Iterable[exp.Expr]) -> exp.Expr:
    """Return the OR of conditions; one alone as it is."""
    found = list(conditions)
    return found[0] if len(found) == 1 else exp.or_(*found)
