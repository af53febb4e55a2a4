"""Random queries: every kind of join, every clause, also where they cannot go together."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.fuzzing.catalog import APPENDED, CHANGING, TABLES
from tests.fuzzing.conditions import Conditions

_JOINS = (
    "JOIN", "INNER JOIN", "LEFT JOIN", "LEFT JOIN", "LEFT OUTER JOIN", "RIGHT JOIN", "FULL JOIN", "FULL OUTER JOIN",
    "LEFT SEMI JOIN", "LEFT ANTI JOIN", "RIGHT SEMI JOIN", "RIGHT ANTI JOIN", "CROSS JOIN",
)  # fmt: skip
_AGGREGATES = (
    "count()", "count(*)", "count({})", "count(DISTINCT {})", "sum({})", "avg({})", "min({})", "max({})",
    "first_value({})", "last_value({})", "any_value({})", "count_if({} > 0)", "max({}) FILTER (WHERE {} > 1)",
    "stddev({})", "approx_count_distinct({})", "sum({}) + count()",
    "sum(DISTINCT {})", "max_by({}, {})", "collect_list({})", "array_agg(DISTINCT {})", "listagg({}, ',')",
    "median({})", "percentile({}, array(0, 0.5))", "percentile_approx({}, 0.5)", "bool_or({} > 0)", "every({})",
)  # fmt: skip
SETTINGS = (
    "join_max_buffered_bytes = 100000000", "eviction = 'oldest'", "eviction = 'lru'", "max_rows_per_key = 10",
    "eviction = 'per_key'", "table_retention = '1 day'", "table_retention = 'forever'", "join_ttl = '1 hour'",
    "join_algorithm = 'sliding'", "join_algorithm = 'symmetric'", "multi_join = 'on'", "multi_join = 'off'",
    "late_rows = 'late_orders'", "allowed_lateness = '1 hour'", "bad_rows = 'fail'", "max_future = '1 hour'",
    "idle_timeout = '30 seconds'", "seek_to = 'latest'", "temporal_wait = 'none'", "deterministic = true",
    "mode = 'real_time'", "epoch = '2 seconds'", "trigger = '1 second'", "buckets = 4", "skew = 'keep'",
    "skew = 'spread'", "skew_rows = 5", "worker_memory = '1GB'", "default_hash_join = 'hybrid'",
    "default_hash_table = 'hybrid'", "max_hot_keys = 10", "max_hot_bytes = '1MB'", "nonsense = 1", "buckets = 0",
    "trigger = ''", "skew_rows = 1e9", "worker_memory = '1'", "seek_to = '2026-01-01T00:00:00Z'", "evicted_rows = 'x'",
)  # fmt: skip


def query(rng: random.Random, *, with_end: bool = True) -> str:
    """A query, with EMIT and SETTINGS at its end if ``with_end``."""
    return _Queries(rng).query(with_end)


class _Queries:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._unit = rng.choice(("timestamp", "timestamp", "timestamp", "s", "row"))
        self._conditions = Conditions(rng, self._unit)
        names = APPENDED[self._unit]
        self._streams = [*names, *names, *CHANGING[self._unit]] if rng.random() < 0.4 else list(names)
        if rng.random() < 0.05:
            self._streams += ["trades", "logs", "unknown", *APPENDED["s"]]
        self._taken = 0

    def query(self, with_end: bool) -> str:
        joins = self._rng.choice((0, 1, 1, 1, 2, 2, 3))
        source, aliases = self._source(self._streams)
        text, visible = self._joined(source, aliases, joins)
        head = self._chance(0.1, "WITH w AS (SELECT * FROM {0}) ").format(self._rng.choice(self._streams))
        if head and self._chance(0.7, "x"):
            text = text.replace(source.split()[0], "w", 1) if not source.startswith("(") else text
        where = self._where(visible)
        if self._rng.random() < 0.2:
            select, rest = self._aggregated(visible)
        else:
            select, rest = self._select_list(visible), self._order(visible)
        end = self._end() if with_end else ""
        return f"{head}SELECT {select} FROM {text}{where}{rest}{end}"

    def _source(self, names: Sequence[str]) -> tuple[str, str]:
        """A stream or a subselect with its alias."""
        name, alias = self._rng.choice(names), self._alias()
        draw = self._rng.random()
        if draw < 0.08:
            inner = self._conditions.condition(["$z"], 1)
            return f"(SELECT $z.id, $z.cust, $z.v, $z.n, $z.amount, $z.ts FROM {name} $z WHERE {inner}) {alias}", alias
        if draw < 0.12:
            return f"(SELECT * FROM {name}) AS {alias}", alias
        return f"{name}{self._chance(0.3, ' AS')} {alias}", alias

    def _joined(self, text: str, alias: str, joins: int) -> tuple[str, list[str]]:
        """Joins after a source; the aliases that the SELECT list may name."""
        visible = [alias]
        for _ in range(joins):
            more, right, is_hidden = self._join(visible)
            text += more
            visible = [right] if is_hidden == "left" else [*visible, *([] if is_hidden else [right])]
        return text, visible

    def _join(self, visible: Sequence[str]) -> tuple[str, str, str]:
        """One join: its text, its alias, and whether it hides a side (``left``, ``right``)."""
        left = self._rng.choice(visible)
        draw = self._rng.random()
        if draw < 0.12:
            return self._asof(left)
        if draw < 0.22:
            return self._temporal(left)
        if draw < 0.27:
            return self._lookup(left)
        if draw < 0.33:
            inner, one = self._source(self._streams)
            nested, [*_, right] = self._joined(inner, one, 1)
            return f" {self._kind()} ({nested}) ON {self._on(left, right)}{self._bounds()}", right, ""
        kind = self._kind()
        source, right = self._source(self._streams)
        hidden = "left" if kind.startswith(("RIGHT S", "RIGHT A")) else ""
        hidden = "right" if kind.startswith(("LEFT S", "LEFT A")) else hidden
        if kind == "CROSS JOIN":
            return f" {kind} {source}{self._bounds()}", right, ""
        if self._rng.random() < 0.1:
            using = self._rng.choice(("id", "cust", "id, cust", "ts"))
            return f" {kind} {source} USING ({using}){self._bounds()}", right, hidden
        if self._rng.random() < 0.02:
            return f" NATURAL {kind} {source}{self._bounds()}", right, hidden
        return f" {kind} {source} ON {self._on(left, right)}{self._bounds()}", right, hidden

    def _kind(self) -> str:
        return self._rng.choice(_JOINS if self._rng.random() < 0.5 else _JOINS[:4])

    def _on(self, left: str, right: str) -> str:
        parts = [self._conditions.key(left, right)] if self._rng.random() < 0.93 else []
        if self._rng.random() < 0.35:
            parts.append(self._conditions.window(left, right))
        if self._rng.random() < 0.25 or not parts:
            parts.append(self._conditions.condition([left, right], 1))
        self._rng.shuffle(parts)
        return f"«{' AND '.join(parts)}»"

    def _bounds(self) -> str:
        within = self._rng.choice(
            (f" WITHIN {self._conditions.interval()}",) * 3
            + (f" WITHIN ({self._conditions.interval()}, {self._conditions.interval()})", "", "")
        )
        grace = self._chance(0.08, f" GRACE PERIOD {self._conditions.interval()}")
        return within + grace + self._chance(0.08, f" ALLOWED LATENESS {self._conditions.interval()}")

    def _asof(self, left: str) -> tuple[str, str, str]:
        source, right = self._source(self._streams)
        comparison = self._rng.choice((">=", ">=", ">", "<", "<="))
        match = f"«{left}.ts {comparison} {right}.ts»"
        if self._rng.random() < 0.2:
            match = f"NEAREST({left}.ts, {right}.ts)"
        if self._rng.random() < 0.4:
            first, second = (left, right) if comparison.startswith(">") else (right, left)
            match += f" AND «{first}.ts - {second}.ts <= {self._conditions.span()}»"
        on = self._chance(0.9, f" ON {self._on_plain(left, right)}")
        return f" {self._chance(0.5, 'LEFT ')}ASOF JOIN {source} MATCH_CONDITION ({match}){on}", right, ""

    def _temporal(self, left: str) -> tuple[str, str, str]:
        right = self._alias()
        name = self._rng.choice([*CHANGING[self._unit], *CHANGING[self._unit], *self._streams])
        time = self._rng.choice((f"{left}.ts",) * 4 + ("PROCTIME()", f"{left}.n", "TIMESTAMP '2026-01-01 00:00:00'"))
        versioned = self._chance(0.1, " VERSIONED ON n")
        kind = self._chance(0.5, "LEFT ")
        on = self._on_plain(left, right)
        return f" {kind}JOIN {name} FOR SYSTEM_TIME AS OF {time}{versioned} {right} ON {on}", right, ""

    def _lookup(self, left: str) -> tuple[str, str, str]:
        right, name = self._alias(), self._rng.choice(TABLES)
        kind = self._chance(0.5, "LEFT ")
        on = self._on_plain(left, right)
        return f" {kind}JOIN {name} FOR SYSTEM_TIME AS OF PROCTIME() {right} ON {on}", right, ""

    def _on_plain(self, left: str, right: str) -> str:
        more = self._chance(0.2, f" AND {self._conditions.condition([left, right], 1)}")
        return f"«{self._conditions.key(left, right)}{more}»"

    def _where(self, visible: Sequence[str]) -> str:
        parts = [self._conditions.condition(visible) for _ in range(self._rng.choice((0, 0, 1, 1, 2)))]
        if self._rng.random() < 0.1:
            parts.append(self._subquery(self._rng.choice(visible)))
        return f" WHERE «{' AND '.join(parts)}»" if parts else ""

    def _subquery(self, left: str) -> str:
        source, right = self._source(self._streams)
        negated = self._chance(0.4, "NOT ")
        window = self._chance(0.8, f" AND {self._conditions.window(left, right)}")
        if self._rng.random() < 0.5:
            found = f"«{negated}EXISTS (SELECT 1 FROM {source} WHERE {self._conditions.key(left, right)}{window})»"
        else:
            found = f"«{left}.id {negated}IN (SELECT {right}.id FROM {source} WHERE {left}.v = {right}.v{window})»"
        return self._rng.choice((found, found, f"«({found} OR {self._conditions.condition([left], 1)})»"))

    def _select_list(self, visible: Sequence[str]) -> str:
        if self._rng.random() < 0.1:
            return self._rng.choice(("*", f"{self._rng.choice(visible)}.*", f"{visible[0]}.id"))
        items = [f"{self._conditions.expression(visible)} AS c{i}" for i in range(self._rng.choice((1, 2, 2, 3)))]
        return ", ".join(items)

    def _aggregated(self, visible: Sequence[str]) -> tuple[str, str]:
        column = self._conditions.expression(visible, 1)
        calls = [
            f"{self._rng.choice(_AGGREGATES).replace('{}', self._conditions.expression(visible, 1))} AS c{i}"
            for i in range(1, self._rng.choice((2, 2, 3)))
        ]
        key = self._rng.choice((column, column, "1", "c0"))
        of_sets = (f"ROLLUP({key})", f"CUBE({column}, {key})", f"GROUPING SETS(({key}), ())")
        group = self._chance(0.85, f" GROUP BY {self._rng.choice((key, key, key, self._rng.choice(of_sets)))}")
        having = self._chance(0.2, f" HAVING «{self._rng.choice(('count() > 1', 'c1 > 0', f'max({column}) > 1'))}»")
        return ", ".join([f"{column} AS c0", *calls]), group + having

    def _order(self, visible: Sequence[str]) -> str:
        if self._rng.random() > 0.1:
            return ""
        more = self._chance(0.4, f", {self._conditions.expression(visible, 1)}{self._chance(0.3, ' DESC')}")
        return f" ORDER BY {self._rng.choice(visible)}.ts{more}{self._chance(0.03, ' LIMIT 5')}"

    def _end(self) -> str:
        emit = self._rng.choice(("", "", "", " EMIT FINAL", " EMIT CHANGELOG"))
        count = self._rng.choice((0, 0, 0, 1, 1, 2))
        return emit + (f" SETTINGS {', '.join(self._rng.sample(SETTINGS, count))}" if count else "")

    def _alias(self) -> str:
        self._taken += 1
        return f"${'abcdefghijklmnop'[(self._taken - 1) % 16]}"

    def _chance(self, share: float, text: str) -> str:
        return text if self._rng.random() < share else ""
