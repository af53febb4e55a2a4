"""One step of an aggregate, as DuckDB SQL over new rows and what is stored (what it computes stands in kernel.py).

Everything is stored as a log of what steps added: to the running totals of a group, to how often a value is there, and
as what is shown of it.  From time to time the log is settled: put together with what was settled before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from watersmeet.columns import TIME, WEIGHT
from watersmeet.kernels.aggregate.parts import Bag
from watersmeet.kernels.api import FOREVER, NEVER, StateView, StepResult, quote

if TYPE_CHECKING:
    from watersmeet.kernels.aggregate.kernel import Aggregate

#: A log with fewer rows is not worth settling.
LEAST_SETTLED = 10_000
TOTALS, SHOWN = "totals", "shown"
_ROWS = "$rows"  # how many rows a group has
_GROUP = "$group"  # the number of a group within a step
_STEP, _GONE = "$step", "$gone"


def settled(relation: str) -> str:
    """The relation of what was settled of one."""
    return f"{relation}_settled"


def run(kernel: Aggregate, state: StateView, rows: pa.Table, first_rid: int) -> StepResult:
    """Apply rows that come and go; give the difference that it makes."""
    step = _Step(kernel, state, state.show(rows), first_rid)
    try:
        return step.run()
    finally:
        step.close()


@dataclass(slots=True)
class _Step:
    """One step over tables: ``arrived`` rows, what is new of each relation, and the ``difference`` that it makes.

    The new totals have one row for each group that the step touches, with its number within the step.
    """

    kernel: Aggregate
    state: StateView
    arriving: str
    number: int  # rises from step to step
    groups: pa.Table = field(init=False)  # their keys
    result: StepResult = field(default_factory=StepResult)

    def run(self) -> StepResult:
        self.make("arrived", self.arrived())
        if self.kernel.always and not any(self.state.count(name, NEVER) for name in (SHOWN, settled(SHOWN))):
            self.number -= 1  # it may bring no rows, and then the next step has the same number
        elif not self.count("arrived"):
            return self.result
        self.make(_new(TOTALS), self.new_totals())
        self.groups = self.fetch(f"SELECT {_names(self.keys) or '1'} FROM {_new(TOTALS)}")
        for bag in self.kernel.bags:
            self.make(_new(bag.name), self.new_values(bag))
        self.make("difference", self.difference())
        self.make(_new(SHOWN), self.new_shown())
        self.result.changes = self.fetch(self.changes())
        for relation in self.kernel.relations:
            self.keep(relation)
        return self.result

    # -- names -----------------------------------------------------------------------------------------------------

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(name for name, _, _ in self.kernel.keys)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(output.name for output in self.kernel.outputs)

    @property
    def totals(self) -> dict[str, str]:
        """The columns of totals, and their types."""
        return {_ROWS: "BIGINT", **{total.name: total.type for total in self.kernel.totals}}

    def same_group(self, left: str, right: str) -> str:
        """Whether two rows have the same keys; NULL is like NULL."""
        terms = [f"{left}.{quote(name)} IS NOT DISTINCT FROM {right}.{quote(name)}" for name in self.keys]
        return " AND ".join(terms) or "TRUE"

    def by_keys(self, *more: str) -> str:
        names = (*map(quote, self.keys), *more)
        return f" GROUP BY {', '.join(names)}" if names else ""

    def first_of_group(self, order: str) -> str:
        """Whether a row is the first one of its group in an order."""
        keys = f"PARTITION BY {_names(self.keys)} " if self.keys else ""
        return f"row_number() OVER ({keys}ORDER BY {order}) = 1"

    # -- what is new -----------------------------------------------------------------------------------------------

    def arrived(self) -> str:
        """SQL of the rows with all that is computed of them."""
        kernel = self.kernel
        items = [f"{sql} AS {quote(name)}" for name, sql, _ in kernel.keys]
        items += [f"{total.sql} AS {quote(total.name)}" for total in kernel.totals]
        for bag in kernel.bags:
            items += [f"{sql} AS {_value(bag, name)}" for name, sql in zip(bag.values, bag.columns, strict=True)]
            if bag.amount is not None:
                items.append(f"{bag.amount} AS {_value(bag, 'w')}")
        items.append(f"CAST({quote(WEIGHT) if kernel.changes else 1} AS BIGINT) AS {quote(WEIGHT)}")
        return f"SELECT {', '.join(items)} FROM {self.arriving} WHERE {kernel.where or 'TRUE'}"

    def new_totals(self) -> str:
        """SQL of what the step adds to the totals of each group."""
        weight = quote(WEIGHT)
        items = [*map(quote, self.keys), f"CAST(coalesce(sum({weight}), 0) AS BIGINT) AS {quote(_ROWS)}"]
        for total in self.kernel.totals:
            name = quote(total.name)
            added = f"sum(CASE WHEN {weight} > 0 THEN {name} ELSE -{name} END)"
            items.append(f"CAST(coalesce({added}, 0) AS {total.type}) AS {name}")
        sums = f"SELECT {', '.join(items)} FROM arrived{self.by_keys()}"
        return f"SELECT row_number() OVER () AS {quote(_GROUP)}, * FROM ({sums})"

    def new_values(self, bag: Bag) -> str:
        """SQL of the values that come and go: how much more or less often they are there."""
        items = [*map(quote, self.keys), *(f"{_value(bag, name)} AS {name}" for name in bag.values)]
        there = f"{_value(bag, bag.values[-1])} IS NOT NULL"
        weight = quote(WEIGHT) if bag.amount is None else f"{_value(bag, 'w')} * {quote(WEIGHT)}"
        rows = f"SELECT {', '.join(items)}, {weight} AS w FROM arrived WHERE {there}"
        return self.of_ends(bag, self.added_values(bag, rows))

    def added_values(self, bag: Bag, rows: str) -> str:
        names = ", ".join((*map(quote, self.keys), *bag.values))
        by = self.by_keys(*bag.values)
        kind = "BIGINT" if bag.amount is None else "DECIMAL(38, 0)"
        return f"SELECT {names}, CAST(sum(w) AS {kind}) AS w FROM ({rows}){by} HAVING sum(w) <> 0"

    def of_ends(self, bag: Bag, rows: str) -> str:
        """SQL of the values that may be first in one of the bag's orders; all of them where it has none."""
        if not bag.ends:
            return rows
        return f"SELECT * FROM ({rows}) QUALIFY {' OR '.join(map(self.first_of_group, bag.ends))}"

    # -- what is stored of the groups ------------------------------------------------------------------------------

    def found(self, relation: str) -> list[str]:
        """SQL of what is stored of a relation, in parts, among it all of the step's groups."""
        names = (relation, settled(relation))
        parts = (self.state.matching(name, self.keys, self.groups, NEVER, FOREVER) for name in names)
        return [part for part in parts if part is not None]

    def of_groups(self, rows: str, columns: Sequence[str]) -> str:
        """SQL of the rows that are of the step's groups, under the groups' numbers."""
        names = ", ".join((f"g.{quote(_GROUP)}", *(f"s.{name}" for name in columns)))
        return f"SELECT {names} FROM {rows} AS s JOIN {_new(TOTALS)} AS g ON {self.same_group('s', 'g')}"

    def of_groups_now(self, relation: str, columns: Sequence[str]) -> str:
        """SQL of what is stored of the step's groups, and of what is new."""
        return " UNION ALL ".join(self.of_groups(rows, columns) for rows in (_new(relation), *self.found(relation)))

    # -- what comes out --------------------------------------------------------------------------------------------

    def difference(self) -> str:
        """SQL of the groups of which something else is to be shown: what was (``b``) and what is (``n``)."""
        group = quote(_GROUP)
        parts = [f"totals AS ({self.now_totals()})"]
        parts += [part for bag in self.kernel.bags for part in self.figures(bag)]
        parts += [f"now AS ({self.now()})", f"before AS ({self.before()})"]
        items = [f"g.{quote(name)}" for name in self.keys]
        items += [f"{row}.{quote(name)} AS {quote(row + name)}" for row in "bn" for name in self.outputs]
        was, is_now = f"b.{group} IS NOT NULL", f"n.{group} IS NOT NULL"
        items += [f"{was} AS was", f"{is_now} AS is_now"]
        differs = " OR ".join(f"b.{quote(name)} IS DISTINCT FROM n.{quote(name)}" for name in self.outputs) or "FALSE"
        joined = f"{_new(TOTALS)} AS g LEFT JOIN before AS b USING ({group}) LEFT JOIN now AS n USING ({group})"
        where = f"({was}) <> ({is_now}) OR ({was} AND ({differs}))"
        return f"WITH {', '.join(parts)} SELECT {', '.join(items)} FROM {joined} WHERE {where}"

    def now_totals(self) -> str:
        """SQL of the totals of each group, with the step's."""
        sums = [f"CAST(sum({quote(name)}) AS {type}) AS {quote(name)}" for name, type in self.totals.items()]
        rows = self.of_groups_now(TOTALS, list(map(quote, self.totals)))
        return f"SELECT {quote(_GROUP)}, {', '.join(sums)} FROM ({rows}) GROUP BY {quote(_GROUP)}"

    def figures(self, bag: Bag) -> list[str]:
        """SQL, named, of the values that are there and how often, and of the figures of each group that has some."""
        group, rows = quote(_GROUP), f"now_{bag.name}"
        by = ", ".join((group, *bag.values))
        found = self.of_groups_now(bag.name, (*bag.values, "w"))
        there = "> 0" if bag.amount is None else "<> 0"
        values = f"SELECT {by}, sum(w) AS w FROM ({found}) GROUP BY {by} HAVING sum(w) {there}"
        centred = rows
        if bag.centre is not None:
            centred += f" JOIN (SELECT {group}, {bag.centre} AS mean FROM {rows} GROUP BY {group}) USING ({group})"
        items = ", ".join(f"{sql} AS {quote(name)}" for name, sql in bag.figures)
        return [
            f"{rows} AS MATERIALIZED ({values})",
            f"figures_{bag.name} AS (SELECT {group}, {items} FROM {centred} GROUP BY {group})",
        ]

    def now(self) -> str:
        """SQL of what holds now of the groups that have rows."""
        group = quote(_GROUP)
        items = [group, *(f"{each.sql} AS {quote(each.name)}" for each in self.kernel.outputs)]
        rows = "totals"
        for bag in self.kernel.bags:
            rows += f" LEFT JOIN figures_{bag.name} USING ({group})"
        there = "TRUE" if self.kernel.always else f"{quote(_ROWS)} > 0"
        return f"SELECT {', '.join(items)} FROM {rows} WHERE {there}"

    def before(self) -> str:
        """SQL of what is shown of the groups."""
        names = [quote(name) for name in self.outputs]
        columns = [*names, quote(_STEP), quote(_GONE)]
        parts = [self.of_groups(rows, columns) for rows in self.found(SHOWN)]
        rows = ", ".join((quote(_GROUP), *names))
        if not parts:
            return f"SELECT {rows} FROM now WHERE FALSE"
        newest = f"row_number() OVER (PARTITION BY {quote(_GROUP)} ORDER BY {quote(_STEP)} DESC) = 1"
        latest = f"SELECT * FROM ({' UNION ALL '.join(parts)}) QUALIFY {newest}"
        return f"SELECT {rows} FROM ({latest}) WHERE NOT {quote(_GONE)}"

    def changes(self) -> str:
        """SQL of what goes out."""
        keys = [quote(name) for name in self.keys]
        parts = []
        for row, there, weight in (("b", "was", -1), ("n", "is_now", 1)):
            items = [*keys, *(f"{quote(row + name)} AS {quote(name)}" for name in self.outputs)]
            items.append(f"CAST({weight} AS TINYINT) AS {quote(WEIGHT)}")
            parts.append(f"SELECT {', '.join(items)} FROM difference WHERE {there}")
        return " UNION ALL ".join(parts)

    def new_shown(self) -> str:
        """SQL of what is shown from now on of the groups that changed."""
        items = [*map(quote, self.keys), *(f"{quote('n' + name)} AS {quote(name)}" for name in self.outputs)]
        items += [f"CAST({self.number} AS BIGINT) AS {quote(_STEP)}", f"NOT is_now AS {quote(_GONE)}"]
        return f"SELECT {', '.join(items)} FROM difference"

    # -- state -----------------------------------------------------------------------------------------------------

    def keep(self, relation: str) -> None:
        """Log what is new of a relation, or settle it with all that is stored."""
        columns = self.stored(relation)
        time = f"CAST(0 AS BIGINT) AS {quote(TIME)}"
        new = self.fetch(f"SELECT {columns}, {time} FROM {_new(relation)}")
        most = max(LEAST_SETTLED, self.state.count(settled(relation), NEVER))
        if new.num_rows + self.state.count(relation, NEVER) < most:
            self.result.store[relation] = new
            return
        log, before = (self.state.scan(name, NEVER, FOREVER) for name in (relation, settled(relation)))
        rows = " UNION ALL ".join(f"SELECT {columns} FROM {part}" for part in (_new(relation), log, before) if part)
        self.result.replace[settled(relation)] = self.fetch(f"SELECT *, {time} FROM ({self.together(relation, rows)})")
        self.result.replace[relation] = new.slice(0, 0)

    def stored(self, relation: str) -> str:
        """The columns that are stored of a relation, beside the time."""
        if relation == TOTALS:
            return _names((*self.keys, *self.totals))
        if relation == SHOWN:
            return _names((*self.keys, *self.outputs, _STEP, _GONE))
        bag = next(bag for bag in self.kernel.bags if bag.name == relation)
        return _names((*self.keys, *bag.values, "w"))

    def together(self, relation: str, rows: str) -> str:
        """SQL of what a log comes to: sums that are not nothing, and of what was shown what still is."""
        if relation == SHOWN:
            newest = self.first_of_group(f"{quote(_STEP)} DESC")
            return f"SELECT * FROM (SELECT * FROM ({rows}) QUALIFY {newest}) WHERE NOT {quote(_GONE)}"
        if relation != TOTALS:
            bag = next(bag for bag in self.kernel.bags if bag.name == relation)
            return self.of_ends(bag, self.added_values(bag, rows))
        sums = [f"CAST(sum({quote(name)}) AS {type}) AS {quote(name)}" for name, type in self.totals.items()]
        some = " OR ".join(f"sum({quote(name)}) <> 0" for name in self.totals)
        items = ", ".join((*map(quote, self.keys), *sums))
        return f"SELECT {items} FROM ({rows}){self.by_keys()} HAVING {some}"

    # -- SQL -------------------------------------------------------------------------------------------------------

    def make(self, name: str, sql: str) -> None:
        self.state.connection.execute(f"CREATE TEMP TABLE {name} AS {sql}")

    def fetch(self, sql: str) -> pa.Table:
        return self.state.connection.sql(sql).to_arrow_table()

    def count(self, rows: str) -> int:
        ((found,),) = self.state.connection.execute(f"SELECT count(*) FROM {rows}").fetchall()
        return int(found)

    def close(self) -> None:
        for name in ("arrived", "difference", *map(_new, self.kernel.relations)):
            self.state.connection.execute(f"DROP TABLE IF EXISTS {name}")


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(quote, names))


def _new(relation: str) -> str:
    """The table of what a step adds to a relation."""
    return f"new_{relation}"


def _value(bag: Bag, name: str) -> str:
    """The column of arrived rows that holds a value of a bag."""
    return quote(f"{bag.name}_{name}")
