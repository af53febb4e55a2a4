"""One step of an aggregate, as DuckDB SQL over new and stored rows (kernel.py says what it computes).

Each relation (totals, one for each bag, and "shown": the emitted results) is a log of what steps added, and a settled
part::

    arrived     = input rows that pass ``where``, with keys, totals and bag values computed
    no row arrived: done, unless a global aggregate has no result yet
    groups      = the distinct keys of arrived; everything below is about these groups only
    new_totals  = sum of +- each total over arrived, by group
    new_<bag>   = sum of weights by group and value, without those that cancel out;
                  ends: only values that may be first in an order
    totals      = new_totals + log + settled part
    figures     = computed from new_<bag> + log + settled part, for each bag
    now         = results from totals and figures, of groups with rows   (always: of every group)
    before      = the last entry of each group in "shown", unless it says that the group is gone
    difference  = groups whose now and before differ
    emit        - before, + now, of each group in difference
    each relation: log + new rows >= max(10,000, settled part)?  settle : append the new rows to the log

To settle a relation is to merge log and settled part: sums that became 0 and groups that are gone are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from watersmeet.columns import ID, ROWS, TIME, WEIGHT
from watersmeet.kernels.aggregate.parts import Bag
from watersmeet.kernels.api import NEVER, StateView, StepFrontiers, StepResult, in_one_table, made, quote, shift
from watersmeet.kernels.sql import names_sql, same_values

if TYPE_CHECKING:
    from watersmeet.kernels.aggregate.kernel import Aggregate
    from watersmeet.kernels.step_tables import StepTables

#: A shorter log is not settled.
MIN_SETTLED = 10_000
TOTALS, SHOWN = "totals", "shown"
GROUP = "$group"  # the number of a group within a step
_STEP, _GONE = "$step", "$gone"


def settled(relation: str) -> str:
    """Return the name of a relation's settled part."""
    return f"{relation}_settled"


def run(kernel: Aggregate, state: StateView, rows: pa.Table, first_rid: int, frontiers: StepFrontiers) -> StepResult:
    """Apply new and retracted rows; emit the difference that they make."""
    return Step(kernel, state, state.register(rows), first_rid, frontiers).run()


@dataclass(slots=True)
class Step:
    """One step over the tables ``arrived``, ``new_...`` of each relation, and ``difference``.

    ``new_totals`` has a row for each group that the step touches, with a number that identifies it within the step.
    """

    kernel: Aggregate
    state: StateView
    arriving: str
    number: int  # rises from step to step
    frontiers: StepFrontiers
    groups: pa.Table = field(init=False)  # their keys
    numbered: str = "new_totals"  # the table with the keys and numbers of the groups that results are computed of
    result: StepResult = field(default_factory=StepResult)

    @property
    def tables(self) -> StepTables:
        """Those of the step."""
        return self.state.tables

    def run(self) -> StepResult:
        """Emit the difference, and store what the step adds."""
        self.forget_ended()
        arrived = self.tables.make("arrived", self.arrived())
        if self.kernel.always and not any(self.state.count(name, NEVER) for name in (SHOWN, settled(SHOWN))):
            self.number -= 1  # a step without rows does not use up a row id: the next one has the same number
        elif not arrived:
            return self.result
        self.tables.make(new_table(TOTALS), self.new_totals())
        self.groups = self.state.query(f"SELECT {names_sql(self.keys) or '1'} FROM {new_table(TOTALS)}")
        for bag in self.kernel.bags:
            self.tables.make(new_table(bag.name), self.new_values(bag))
        changed = self.tables.make("difference", self.difference())
        self.tables.make(new_table(SHOWN), self.new_shown())
        self.result.changes = made(self.state, self.changes(), changed)
        for relation in self.kernel.relations:
            self.keep(relation)
        return self.result

    def forget_ended(self) -> None:
        """Drop what is stored of groups that have ended."""
        if self.kernel.end is not None:
            self.result.forget = self.kernel.live_relations(self.frontiers.after)

    # -- names -----------------------------------------------------------------------------------------------------

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the keys."""
        return tuple(name for name, _, _ in self.kernel.keys)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the functions' values."""
        return tuple(output.name for output in self.kernel.outputs)

    @property
    def totals(self) -> dict[str, str]:
        """The columns of the totals, and their types."""
        return {ROWS: "BIGINT", **{total.name: total.type for total in self.kernel.totals}}

    def same_group(self, left: str, right: str) -> str:
        """Return SQL that tests whether two rows have equal keys; NULL equals NULL."""
        return same_values(left, right, self.keys)

    def by_keys(self, *more: str) -> str:
        """Return GROUP BY of the keys and more columns."""
        names = (*map(quote, self.keys), *more)
        return f" GROUP BY {', '.join(names)}" if names else ""

    def first_of_group(self, order: str) -> str:
        """Return SQL that tests whether a row is the first of its group in an order."""
        keys = f"PARTITION BY {names_sql(self.keys)} " if self.keys else ""
        return f"row_number() OVER ({keys}ORDER BY {order}) = 1"

    # -- new rows --------------------------------------------------------------------------------------------------

    def arrived(self) -> str:
        """Return SQL for the input rows with keys, totals and bag values computed."""
        kernel = self.kernel
        items = [f"{sql} AS {quote(name)}" for name, sql, _ in kernel.keys]
        items += [f"{total.sql} AS {quote(total.name)}" for total in kernel.totals]
        for bag in kernel.bags:
            items += [f"{sql} AS {_value(bag, name)}" for name, sql in zip(bag.values, bag.columns, strict=True)]
            if bag.amount is not None:
                items.append(f"{bag.amount} AS {_value(bag, 'w')}")
        weight = quote(ROWS) if kernel.gathered else quote(WEIGHT) if kernel.changes else "1"
        items.append(f"CAST({weight} AS BIGINT) AS {quote(WEIGHT)}")
        return f"SELECT {', '.join(items)} FROM {self.arriving} WHERE {kernel.where or 'TRUE'}"

    def new_totals(self) -> str:
        """Return SQL for what the step adds to the totals of each group."""
        weight = quote(WEIGHT)
        items = [*map(quote, self.keys), f"CAST(coalesce(sum({weight}), 0) AS BIGINT) AS {quote(ROWS)}"]
        for total in self.kernel.totals:
            name = quote(total.name)
            added = f"sum(CASE WHEN {weight} > 0 THEN {name} ELSE -{name} END)"
            items.append(f"CAST(coalesce({added}, 0) AS {total.type}) AS {name}")
        sums = f"SELECT {', '.join(items)} FROM arrived{self.by_keys()}"
        return f"SELECT row_number() OVER () AS {quote(GROUP)}, * FROM ({sums})"

    def new_values(self, bag: Bag) -> str:
        """Return SQL for the values whose number of occurrences the step changes, and by how much."""
        items = [*map(quote, self.keys), *(f"{_value(bag, name)} AS {name}" for name in bag.values)]
        there = f"{_value(bag, bag.values[-1])} IS NOT NULL"
        weight = quote(WEIGHT) if bag.amount is None else f"{_value(bag, 'w')} * {quote(WEIGHT)}"
        rows = f"(SELECT {', '.join(items)}, {weight} AS w FROM arrived WHERE {there})"
        return self.of_ends(bag, self.added_values(bag, rows))

    def added_values(self, bag: Bag, rows: str) -> str:
        """Return SQL that adds up how often each value of a bag occurs."""
        names = ", ".join((*map(quote, self.keys), *bag.values))
        by = self.by_keys(*bag.values)
        kind = "BIGINT" if bag.amount is None else "DECIMAL(38, 0)"
        return f"SELECT {names}, CAST(sum(w) AS {kind}) AS w FROM {rows}{by} HAVING sum(w) <> 0"

    def of_ends(self, bag: Bag, rows: str) -> str:
        """Return SQL for the values that may be first in one of the bag's orders; all if it has none."""
        if not bag.ends:
            return rows
        return f"SELECT * FROM ({rows}) QUALIFY {' OR '.join(map(self.first_of_group, bag.ends))}"

    # -- stored rows of the step's groups --------------------------------------------------------------------------

    def found(self, relation: str) -> list[str]:
        """Return SQL for log and settled part of a relation, with all rows of the step's groups among them."""
        names = (relation, settled(relation))
        parts = (self.state.rows_with_keys(name, self.keys, self.groups) for name in names)
        return [part for part in parts if part is not None]

    def of_groups(self, rows: str, columns: Sequence[str]) -> str:
        """Return SQL for the rows of the step's groups, with the groups' numbers in place of keys."""
        names = ", ".join((f"g.{quote(GROUP)}", *(f"s.{name}" for name in columns)))
        return f"SELECT {names} FROM {rows} AS s JOIN {self.numbered} AS g ON {self.same_group('s', 'g')}"

    def of_groups_now(self, relation: str, columns: Sequence[str]) -> str:
        """Return SQL for the new and stored rows of the step's groups."""
        return " UNION ALL ".join(self.of_groups(rows, columns) for rows in self.parts_now(relation))

    def parts_now(self, relation: str) -> list[str]:
        """Return SQL for all parts of a relation that hold rows of the step's groups."""
        return [new_table(relation), *self.found(relation)]

    # -- results ---------------------------------------------------------------------------------------------------

    def difference(self) -> str:
        """Return SQL for the groups whose result changes: the columns before (``b...``) and now (``n...``)."""
        group = quote(GROUP)
        parts = [f"totals AS ({self.now_totals()})"]
        parts += [part for bag in self.kernel.bags for part in self.figures(bag)]
        parts += [f"now AS ({self.now()})", f"before AS ({self.before()})"]
        items = [f"g.{quote(name)}" for name in self.keys]
        items += [f"{row}.{quote(name)} AS {quote(row + name)}" for row in "bn" for name in self.outputs]
        was, is_now = f"b.{group} IS NOT NULL", f"n.{group} IS NOT NULL"
        items += [f"{was} AS was", f"{is_now} AS is_now"]
        differs = " OR ".join(f"b.{quote(name)} IS DISTINCT FROM n.{quote(name)}" for name in self.outputs) or "FALSE"
        joined = f"{new_table(TOTALS)} AS g LEFT JOIN before AS b USING ({group}) LEFT JOIN now AS n USING ({group})"
        where = f"({was}) <> ({is_now}) OR ({was} AND ({differs}))"
        return f"WITH {', '.join(parts)} SELECT {', '.join(items)} FROM {joined} WHERE {where}"

    def now_totals(self) -> str:
        """Return SQL for the totals of each group, the step's included."""
        sums = [f"CAST(sum({quote(name)}) AS {type}) AS {quote(name)}" for name, type in self.totals.items()]
        rows = self.of_groups_now(TOTALS, list(map(quote, self.totals)))
        return f"SELECT {quote(GROUP)}, {', '.join(sums)} FROM ({rows}) GROUP BY {quote(GROUP)}"

    def figures(self, bag: Bag) -> list[str]:
        """Return named SQL for the current values of a bag, and for its figures of each group with values."""
        group, rows = quote(GROUP), f"now_{bag.name}"
        by = ", ".join((group, *bag.values))
        found = self.of_groups_now(bag.name, (*bag.values, "w"))
        there = "> 0" if bag.amount is None else "<> 0"
        count = sum(map(self.state.most_rows, (bag.name, settled(bag.name))))
        every = in_one_table(self.state, found, count, joins_as_written=True)
        values = f"SELECT {by}, sum(w) AS w FROM {every} GROUP BY {by} HAVING sum(w) {there}"
        centred = rows
        if bag.ranked:
            ranks = f"sum(w) OVER (PARTITION BY {group} ORDER BY v0) AS upto, sum(w) OVER (PARTITION BY {group}) AS n"
            centred = f"(SELECT *, {ranks} FROM {rows})"
        if bag.centre is not None:
            centred += f" JOIN (SELECT {group}, {bag.centre} AS mean FROM {rows} GROUP BY {group}) USING ({group})"
        items = ", ".join(f"{sql} AS {quote(name)}" for name, sql in bag.figures)
        # what is read once streams: a group may have any number of values
        kept = "MATERIALIZED " if bag.centre is not None or every.startswith("(") else ""
        return [
            f"{rows} AS {kept}({values})",
            f"figures_{bag.name} AS (SELECT {group}, {items} FROM {centred} GROUP BY {group})",
        ]

    def now(self) -> str:
        """Return SQL for the current results of groups with rows."""
        group = quote(GROUP)
        items = [group, *(f"{each.sql} AS {quote(each.name)}" for each in self.kernel.outputs)]
        rows = "totals"
        for bag in self.kernel.bags:
            rows += f" LEFT JOIN figures_{bag.name} USING ({group})"
        there = "TRUE" if self.kernel.always else f"{quote(ROWS)} > 0"
        return f"SELECT {', '.join(items)} FROM {rows} WHERE {there}"

    def before(self) -> str:
        """Return SQL for the results emitted before."""
        names = [quote(name) for name in self.outputs]
        columns = [*names, quote(_STEP), quote(_GONE)]
        parts = [self.of_groups(rows, columns) for rows in self.found(SHOWN)]
        rows = ", ".join((quote(GROUP), *names))
        if not parts:
            return f"SELECT {rows} FROM now WHERE FALSE"
        newest = f"row_number() OVER (PARTITION BY {quote(GROUP)} ORDER BY {quote(_STEP)} DESC) = 1"
        latest = f"SELECT * FROM ({' UNION ALL '.join(parts)}) QUALIFY {newest}"
        return f"SELECT {rows} FROM ({latest}) WHERE NOT {quote(_GONE)}"

    def changes(self) -> str:
        """Return SQL for the changes to emit."""
        keys = [quote(name) for name in self.keys]
        if self.kernel.once:
            return f"SELECT {names_sql((*self.keys, *self.outputs))} FROM ({self.emitted('n')}) WHERE NOT was"
        parts = []
        for row, there, weight in (("b", "was", -1), ("n", "is_now", 1)):
            items = [*keys, *map(quote, self.outputs), f"CAST({weight} AS TINYINT) AS {quote(WEIGHT)}"]
            if self.kernel.gives_ids:
                items.append(f"{self.id_of_row()} AS {quote(ID)}")
            parts.append(f"SELECT {', '.join(items)} FROM ({self.emitted(row)}) WHERE {there}")
        return " UNION ALL ".join(parts)

    def emitted(self, row: str) -> str:
        """Return SQL for the results before (``b``) or now (``n``), under their names."""
        items = [*map(quote, self.keys), *(f"{quote(row + name)} AS {quote(name)}" for name in self.outputs)]
        return f"SELECT {', '.join((*items, 'was', 'is_now'))} FROM difference"

    def id_of_row(self) -> str:
        """Return SQL for the name of a result: a group has one at a time, so its values tell it."""
        values = ", ".join(
            f"v{number} := {name}" for number, name in enumerate(map(quote, (*self.keys, *self.outputs)))
        )
        return f"md5(CAST(struct_pack({values}) AS VARCHAR))"

    def new_shown(self) -> str:
        """Return SQL for the results that stand from now on, of groups that changed."""
        items = [*map(quote, self.keys), *(f"{quote('n' + name)} AS {quote(name)}" for name in self.outputs)]
        items += [f"CAST({self.number} AS BIGINT) AS {quote(_STEP)}", f"NOT is_now AS {quote(_GONE)}"]
        return f"SELECT {', '.join(items)} FROM difference"

    # -- state -----------------------------------------------------------------------------------------------------

    def keep(self, relation: str) -> None:
        """Append the new rows of a relation to its log, or settle it."""
        columns = self.stored(relation)
        time = f"CAST({self.kernel.end or 0} AS BIGINT) AS {quote(TIME)}"
        low = NEVER if self.kernel.end is None else shift(self.frontiers.after, 1)
        lasting = "TRUE" if self.kernel.end is None else f"({self.kernel.end}) >= {low}"
        new = self.state.query(f"SELECT {columns}, {time} FROM {new_table(relation)} WHERE {lasting}")
        logged, settled_rows = new.num_rows + self.state.count(relation, low), self.state.count(settled(relation), low)
        if logged < max(MIN_SETTLED, settled_rows):
            self.result.store[relation] = new
            return
        log, before = (self.state.scan(name, low) for name in (relation, settled(relation)))
        parts = [part for part in (log, before) if part] + [f"(SELECT * FROM {new_table(relation)} WHERE {lasting})"]
        rows = " UNION ALL ".join(f"SELECT {columns} FROM {part}" for part in parts)
        count = logged + settled_rows
        rows = self.together(relation, in_one_table(self.state, rows, count))
        self.result.replace[settled(relation)] = made(self.state, f"SELECT *, {time} FROM ({rows})", count)
        self.result.replace[relation] = new.slice(0, 0)

    def stored(self, relation: str) -> str:
        """Return the stored columns of a relation, beside the time."""
        if relation == TOTALS:
            return names_sql((*self.keys, *self.totals))
        if relation == SHOWN:
            return names_sql((*self.keys, *self.outputs, _STEP, _GONE))
        bag = next(bag for bag in self.kernel.bags if bag.name == relation)
        return names_sql((*self.keys, *bag.values, "w"))

    def together(self, relation: str, rows: str) -> str:
        """Return SQL that merges the ``rows`` of a log: sums that are not 0, or the results that still stand."""
        if relation == SHOWN:
            newest = self.first_of_group(f"{quote(_STEP)} DESC")
            return f"SELECT * FROM (SELECT * FROM {rows} QUALIFY {newest}) WHERE NOT {quote(_GONE)}"
        if relation != TOTALS:
            bag = next(bag for bag in self.kernel.bags if bag.name == relation)
            return self.of_ends(bag, self.added_values(bag, rows))
        sums = [f"CAST(sum({quote(name)}) AS {type}) AS {quote(name)}" for name, type in self.totals.items()]
        some = " OR ".join(f"sum({quote(name)}) <> 0" for name in self.totals)
        items = ", ".join((*map(quote, self.keys), *sums))
        return f"SELECT {items} FROM {rows}{self.by_keys()} HAVING {some}"


def new_table(relation: str) -> str:
    """Return the table of what a step adds to a relation."""
    return f"new_{relation}"


def _value(bag: Bag, name: str) -> str:
    """Return the column of ``arrived`` with a value of a bag."""
    return quote(f"{bag.name}_{name}")
