"""Spark's window() and session_window() in a SELECT list and GROUP BY, rewritten as TUMBLE, HOP or SESSION in FROM.

SELECT window(ts, '10 seconds') AS w, w.end, count(*) FROM bids GROUP BY w
SELECT named_struct('start', window_start, 'end', window_end) AS w, window_end, count(*)
FROM TUMBLE(bids, ts, INTERVAL '10' SECONDS) GROUP BY window_start, window_end
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from watersmeet.bind.generators import Generator, generator_in_from
from watersmeet.columns import TP_TIME
from watersmeet.errors import BindError, UnsupportedError
from watersmeet.expressions.nodes import WindowTable
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.expressions.windows import WindowBound
from watersmeet.sql.intervals import parts_of_text, together

_CALLS = ("window", "session_window")
#: The clauses in which a call, or a part of what it returns, may stand.
_CLAUSES = ("expressions", "group", "having", "order")


def with_windows_in_from(select: exp.Select) -> exp.Select:
    """The select with its time window in FROM; itself if it calls neither function.

    Raises ``UnsupportedError`` for several windows, and for windows that FROM cannot have; ``BindError`` for arguments
    that are none.
    """
    if next(_calls(select), None) is None:
        return select
    found: exp.Select = select.copy()
    _drop_qualifiers(found)
    first, *others = _calls(found)
    for other in others:
        if other != first:
            raise UnsupportedError(
                "a SELECT has one time window; this is another",
                detail=f"the first is {plain_sql(first)}",
                hint="compute it in a subquery",
                position=position_of(other),
            )
    return _Rewriting(found, first).done()


def _drop_qualifiers(select: exp.Select) -> None:
    """Over one relation, ``window(a.ts, …)`` is ``window(ts, …)``."""
    start = select.args.get("from_")
    joined = [join for join in select.args.get("joins") or () if generator_in_from(join.this) is None]
    if start is None or joined:
        return
    for call in _calls(select):
        for time in call.expressions[:1]:
            if isinstance(time, exp.Column) and time.table.lower() == start.this.alias_or_name.lower():
                time.set("table", None)


def _calls(select: exp.Select) -> Iterator[exp.Anonymous]:
    for clause in _CLAUSES:
        parts = select.args.get(clause) or []
        for part in parts if isinstance(parts, list) else [parts]:
            for node in part.walk(prune=lambda each: isinstance(each, exp.Select)):
                if isinstance(node, exp.Anonymous) and node.name.lower() in _CALLS:
                    yield node


class _Rewriting:
    """One select with one time window; changes the select that it is given."""

    def __init__(self, select: exp.Select, call: exp.Anonymous) -> None:
        self.select = select
        self.call = call.copy()
        self.position = position_of(call)
        self.is_session = call.name.lower() == "session_window"
        items = (item for item in select.expressions if isinstance(item, exp.Alias) and item.this == call)
        self.names = {call.name.lower(), *(item.alias.lower() for item in items)}
        self.relation = self._relation()
        self.alias = self.relation.alias_or_name

    def done(self) -> exp.Select:
        """The rewritten select."""
        partition = self._other_keys() if self.is_session else []
        self._put_in_from(partition)
        for clause in _CLAUSES:
            parts = self.select.args.get(clause)
            if isinstance(parts, list):
                self.select.set(clause, [self._item(part) for part in parts])
            elif isinstance(parts, exp.Group):
                for keys in (parts, *(parts.args.get("grouping_sets") or ())):
                    keys.set("expressions", [each for item in keys.expressions for each in self._keys(item)])
            elif parts is not None:
                self.select.set(clause, self._without_calls(parts))
        return self.select

    # -- FROM ------------------------------------------------------------------------------------------------------

    def _relation(self) -> exp.Expr:
        """The relation in FROM whose column the window is over."""
        start = self.select.args.get("from_")
        time = self.call.expressions[0] if self.call.expressions else None
        if start is None or not isinstance(time, exp.Column):
            raise BindError(f"{self.call.name} is over an event time: name its column first", position=self.position)
        relations: list[exp.Expr] = []
        for each in (start.this, *(join.this for join in self.select.args.get("joins") or ())):
            if (generator := generator_in_from(each)) is None:
                relations.append(each)
            else:
                self._check_generator(generator, time)
        for view in self.select.args.get("laterals") or ():
            if (generator := generator_in_from(view)) is not None:
                self._check_generator(generator, time)
        owners = [each for each in relations if each.alias_or_name.lower() == time.table.lower()]
        if not time.table and len(relations) == 1:
            owners = relations
        if not owners:
            known = ", ".join(each.alias_or_name for each in relations)
            raise BindError(
                f"{self.call.name}({time.name}, …): of several streams, say whose time it is",
                hint=f"write one of {known} before it, as in {relations[0].alias_or_name}.{time.name}",
                position=self.position,
            )
        return owners[0]

    def _check_generator(self, generator: Generator, time: exp.Column) -> None:
        """Raise ``BindError`` where the window is over a column of a generator, or is a session of its rows."""
        alias = (generator.alias or "").lower()
        names = {each.name.lower() for each in generator.names} or {alias}
        is_element = time.table.lower() == alias if time.table else time.name.lower() in names
        if self.is_session:  # the sessions of FROM are of the rows before it, also of those without elements
            raise UnsupportedError(
                f"session_window over the rows of {generator.text} needs a subquery",
                hint=f"write FROM (SELECT {plain_sql(time)}, item, … FROM … LATERAL VIEW explode(items) t AS item)",
                position=self.position,
            )
        if is_element:
            raise BindError(
                f"{plain_sql(time)} is of {generator.text}, and no event time",
                hint="the event time of elements is that of their row; to group by another,"
                f" GROUP BY date_trunc('minute', {plain_sql(time)})",
                position=self.position,
            )

    def _put_in_from(self, partition: list[exp.Expr]) -> None:
        name, lengths = self._windows()
        joins = self.select.args.get("joins") or ()
        if name != "TUMBLE" and any(generator_in_from(join.this) is None for join in joins):
            raise UnsupportedError(
                f"{self.call.name}: a row of a join is in one window only if they follow each other",
                hint=f"write the join as a subquery: FROM {name}((SELECT … JOIN …), ts, INTERVAL '…')",
                position=self.position,
            )
        inner = self.relation.copy()
        where = self.select.args.get("where")
        if self.is_session and where is not None:  # a row that it leaves out keeps no session open
            time = self.call.expressions[0]
            hidden = [time.copy()] if time.name.lower() == TP_TIME else []
            inner = exp.select("*", *hidden).from_(inner).where(where.this).subquery(self.alias)
            inner.this.meta.update(self.call.meta)
            self.select.set("where", None)
        table = WindowTable(
            this=inner,
            name=name,
            time=self.call.expressions[0].this.copy(),
            expressions=lengths,
            partition_by=partition,
            hidden=True,
        )
        table.meta.update(self.call.meta)
        windowed = exp.Table(this=table, alias=exp.TableAlias(this=exp.to_identifier(self.alias)))
        windowed.meta.update(self.relation.meta)
        self.relation.replace(windowed)

    def _windows(self) -> tuple[str, list[exp.Expr]]:
        """The function for FROM, and its lengths."""
        lengths = [_interval(each, self.call) for each in self.call.expressions[1:]]
        most = 1 if self.is_session else 3
        if not 1 <= len(lengths) <= most:
            raise BindError(
                f"{self.call.name} takes an event time and {'a gap' if self.is_session else 'one to three lengths'}",
                hint=f"write {self.call.name}(ts, '10 minutes')",
                position=self.position,
            )
        if self.is_session:
            return "SESSION", lengths
        size, *more = lengths
        slide, offset = (more[0] if more else size), more[1:]
        return ("TUMBLE", [size, *offset]) if slide == size else ("HOP", [slide, size, *offset])

    def _other_keys(self) -> list[exp.Expr]:
        """The keys of GROUP BY beside the session, which a session is of."""
        group = self.select.args.get("group")
        items = group.expressions if isinstance(group, exp.Group) else []
        named = {item.alias.lower(): item.this for item in self.select.expressions if isinstance(item, exp.Alias)}
        found = []
        for item in items:
            key = item
            if isinstance(item, exp.Literal) and item.is_int and 1 <= int(item.name) <= len(self.select.expressions):
                key = self.select.expressions[int(item.name) - 1].unalias()
            elif isinstance(item, exp.Column) and not item.table:
                key = named.get(item.name.lower(), item)
            if not any(node == self.call for node in key.walk()):
                found.append(key.copy())
        return found

    # -- columns ---------------------------------------------------------------------------------------------------

    def _bound(self, bound: WindowBound) -> exp.Expr:
        column = exp.column(bound.value, table=self.alias)
        column.meta.update(self.call.meta)
        return column

    def _struct(self) -> exp.Expr:
        fields = [
            exp.PropertyEQ(this=exp.to_identifier(name), expression=self._bound(bound))
            for name, bound in (("start", WindowBound.START), ("end", WindowBound.END))
        ]
        return exp.Struct(expressions=fields)

    def _item(self, item: exp.Expr) -> exp.Expr:
        """An item of the SELECT list; what has no alias keeps the name of the call, or of its field."""
        if item == self.call:
            return exp.alias_(self._struct(), self.call.name.lower())
        found = self._without_calls(item)
        is_field = isinstance(found, exp.Column) and found.name != item.name and not isinstance(item, exp.Alias)
        return exp.alias_(found, item.name) if is_field or isinstance(item, exp.Dot) else found

    def _keys(self, item: exp.Expr) -> list[exp.Expr]:
        """A key of GROUP BY; the window stands for its two bounds."""
        number = int(item.name) if isinstance(item, exp.Literal) and item.is_int else 0
        is_named = isinstance(item, exp.Column) and not item.table and item.name.lower() in self.names
        selected = self.select.expressions
        is_ordinal = 1 <= number <= len(selected) and isinstance(selected[number - 1].unalias(), exp.Struct)
        if item == self.call or is_named or is_ordinal:
            return [self._bound(WindowBound.START), self._bound(WindowBound.END)]
        return [self._without_calls(item)]

    def _without_calls(self, node: exp.Expr) -> exp.Expr:
        def replace(each: exp.Expr) -> exp.Expr:
            if isinstance(each, exp.Select):
                return each
            if isinstance(each, exp.Anonymous) and each.name.lower() == "window_time":
                end = self._bound(WindowBound.END)
                last = exp.Interval(this=exp.Literal.string("1"), unit=exp.var("MICROSECOND"))
                return exp.Sub(this=end, expression=last)
            if isinstance(each, exp.Dot) and each.this == self.call:
                return self._field(each.expression.name, each)
            if isinstance(each, exp.Column) and each.table.lower() in self.names and each.table != self.alias:
                return self._field(each.name, each)
            return self._struct() if each == self.call else each

        found: exp.Expr = node.transform(replace, copy=False)
        return found

    def _field(self, name: str, node: exp.Expr) -> exp.Expr:
        bounds = {"start": WindowBound.START, "end": WindowBound.END}
        if name.lower() not in bounds:
            raise BindError(
                f"a time window has no field {name}", hint="there are start and end", position=position_of(node)
            )
        return self._bound(bounds[name.lower()])


def _interval(length: exp.Expr, call: exp.Expr) -> exp.Expr:
    """A length as an interval; ``BindError`` for text that is none."""
    if isinstance(length, exp.Interval):
        return length.copy()
    parts = parts_of_text(length.name) if isinstance(length, exp.Literal) and length.is_string else None
    if parts is None or (interval := together(parts)) is None:
        raise BindError(
            f"{plain_sql(length)} is no length of a time window",
            hint="write a number and a unit: '10 minutes'",
            position=position_of(length) or position_of(call),
        )
    interval.meta.update(length.meta)
    return interval
