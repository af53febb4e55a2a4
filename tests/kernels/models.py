"""Shared by the property tests: random windowed joins as SQL, their rows, and a simple model of both.

The model is written from the documents alone: a frontier per input (newest time - delay - grace), the operator's the
least of them, a row late when its time is below the operator's frontier before the batch, a row final when the time
of its last possible partner is below the frontier after it. All times are whole seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.support.reference import Kind, Row, interval_join
from watersmeet.testing.harness import Harness, StepInput, StepOutcome, load_script

MICROS = 1_000_000
BEGIN, END = -(10**12), 10**12  # beyond every time in the tests
COLUMNS = ("k", "g", "v", "ts")
STREAMS = ("l", "r")

KINDS: tuple[Kind, ...] = ("inner", "left", "right", "full", "semi", "anti", "right_semi", "right_anti")
ONE_SIDED = {"semi": "l", "anti": "l", "right_semi": "r", "right_anti": "r"}  # kinds that give rows of one stream


@dataclass(frozen=True)
class Residual:
    """A condition across both sides (or of the right side alone), in SQL and in Python with NULL as None."""

    sql: str
    test: Callable[[Row, Row], bool | None]
    one_sided: bool = False


def _less_or_equal(l: Row, r: Row) -> bool | None:  # noqa: E741
    return None if l["v"] is None or r["v"] is None else l["v"] <= r["v"]


def _or_null(l: Row, r: Row) -> bool | None:  # noqa: E741
    return l["v"] is None or r["v"] is None or l["v"] != r["v"]


def _sum_or_key(l: Row, r: Row) -> bool | None:  # noqa: E741
    total = None if l["v"] is None or r["v"] is None else l["v"] + r["v"] < 2
    return _three_or(total, None if l["g"] is None or r["g"] is None else l["g"] != r["g"])


RESIDUALS = (
    None,
    Residual("l.v <= r.v", _less_or_equal),
    Residual("(l.v IS NULL OR r.v IS NULL OR l.v <> r.v)", _or_null),
    Residual("(l.v + r.v < 2 OR l.g <> r.g)", _sum_or_key),
    Residual("r.v IS NULL", lambda _, r: r["v"] is None, one_sided=True),
    Residual("(r.v + 1 > 1 OR l.v = 0)", lambda l, r: _three_or(_positive(r["v"]), _zero(l["v"]))),  # noqa: E741
)


@dataclass(frozen=True)
class Alternative:
    """What OR combines with EXISTS, over the left row, in SQL and in Python."""

    sql: str
    test: Callable[[Row], bool | None]


ALTERNATIVES = (
    Alternative("l.v = 0", lambda l: _zero(l["v"])),  # noqa: E741
    Alternative("l.k IS NULL", lambda l: l["k"] is None),  # noqa: E741
    Alternative("(l.v > 0 AND l.ts % 2 = 0)", lambda l: bool(_positive(l["v"])) and l["ts"] % 2 == 0),  # noqa: E741
)


def _positive(value: int | None) -> bool | None:
    return None if value is None else value > 0


def _zero(value: int | None) -> bool | None:
    return None if value is None else value == 0


def _three_or(one: bool | None, other: bool | None) -> bool | None:
    if one or other:
        return True
    return None if one is None or other is None else False


@dataclass(frozen=True)
class RowWindow:
    """A window that rows close for themselves: in SQL, in Python, and the last time of a partner (None: no partner)."""

    sql: str
    test: Callable[[Row, Row], bool]  # of rows whose v are not NULL
    last: dict[str, Callable[[Row], int]]
    reads: tuple[str, ...] = ("l",)  # the streams whose v are read

    def matches(self, left: Row, right: Row) -> bool:
        return self._is_known("l", left) and self._is_known("r", right) and self.test(left, right)

    def last_partner(self, stream: str, row: Row) -> int | None:
        return self.last[stream](row) if self._is_known(stream, row) else None

    def _is_known(self, stream: str, row: Row) -> bool:
        return stream not in self.reads or row["v"] is not None


ROW_WINDOWS = (
    RowWindow(
        "r.ts BETWEEN l.ts AND l.ts + 3 * l.v",
        lambda l, r: l["ts"] <= r["ts"] <= l["ts"] + 3 * l["v"],  # noqa: E741
        {"l": lambda l: l["ts"] + 3 * l["v"], "r": lambda r: r["ts"]},  # noqa: E741
    ),
    RowWindow(
        "r.ts <= l.ts + 2 * l.v AND l.ts - 3 * r.v < r.ts",
        lambda l, r: r["ts"] <= l["ts"] + 2 * l["v"] and l["ts"] - 3 * r["v"] < r["ts"],  # noqa: E741
        {"l": lambda l: l["ts"] + 2 * l["v"], "r": lambda r: r["ts"] + 3 * r["v"] - 1},  # noqa: E741
        ("l", "r"),
    ),
    RowWindow(
        "2 * r.ts < l.ts + l.v + 4 AND r.ts >= l.ts - 6",
        lambda l, r: 2 * r["ts"] < l["ts"] + l["v"] + 4 and r["ts"] >= l["ts"] - 6,  # noqa: E741
        {"l": lambda l: (l["ts"] + l["v"] + 3) // 2, "r": lambda r: r["ts"] + 6},  # noqa: E741
    ),
    RowWindow(
        "r.ts - l.v <= l.ts + 5 AND r.ts * 1.5 <= 2 * (l.ts + 9) AND -r.ts <= 3 - l.ts",
        lambda l, r: r["ts"] - l["v"] <= l["ts"] + 5 and 3 * r["ts"] <= 4 * (l["ts"] + 9) and l["ts"] - 3 <= r["ts"],  # noqa: E741
        {"l": lambda l: min(l["ts"] + 5 + l["v"], 4 * (l["ts"] + 9) // 3), "r": lambda r: r["ts"] + 3},  # noqa: E741
    ),
    RowWindow(
        "r.ts = l.ts + 2 * l.v AND l.ts <= r.ts",
        lambda l, r: r["ts"] == l["ts"] + 2 * l["v"],  # noqa: E741
        {"l": lambda l: l["ts"] + 2 * l["v"], "r": lambda r: r["ts"]},  # noqa: E741
    ),
    RowWindow(
        "r.ts >= l.ts AND r.ts <= l.ts + CAST(1.7 * l.v AS DECIMAL(5, 1))",
        lambda l, r: r["ts"] >= l["ts"] and 10 * (r["ts"] - l["ts"]) <= 17 * l["v"],  # noqa: E741
        # a decimal is rounded up
        {"l": lambda l: l["ts"] - (-17 * l["v"] // 10), "r": lambda r: r["ts"]},  # noqa: E741
    ),
)


@dataclass(frozen=True)
class Shape:
    """One query: ``lower <= r.ts - l.ts <= upper`` or a window of each row's own, keys k and perhaps g."""

    kind: Kind
    changelog: bool
    lower: int
    upper: int
    keys: tuple[tuple[str, bool], ...]  # column, null-safe
    residual: Residual | None
    grace: int
    buckets: int
    alternative: Alternative | None = None  # then the join is written as WHERE … OR [NOT] EXISTS
    window: RowWindow | None = None  # in place of the bounds
    probe: str | None = None  # of a sliding join; the left stream needs ORDER BY
    ordered: bool = False
    lateness: int = 0

    def sql(self, delays: dict[str, int]) -> str:
        streams = "".join(
            f"CREATE STREAM {name} (k INT, g STRING, v INT, ts BIGINT, "
            f"WATERMARK FOR ts AS ts - INTERVAL '{delays[name]}' SECONDS) WITH (event_time_unit = 's');"
            for name in STREAMS
        )
        terms = [f"l.{key} {'IS NOT DISTINCT FROM' if safe else '='} r.{key}" for key, safe in self.keys]
        if self.residual is not None:
            terms.append(self.residual.sql)
        bounds = f"r.ts BETWEEN l.ts + {self.lower} AND l.ts + {self.upper}".replace("+ -", "- ")
        terms.append(self.window.sql if self.window is not None else bounds)
        join = {"semi": "LEFT SEMI", "anti": "LEFT ANTI"}.get(self.kind, self.kind.upper().replace("_", " "))
        columns = ", ".join(f"{side}.{name} AS {side}{name}" for side in self.sides for name in COLUMNS)
        grace = f" GRACE PERIOD INTERVAL '{self.grace}' SECONDS" if self.grace else ""
        grace += f" ALLOWED LATENESS INTERVAL '{self.lateness}' SECONDS" if self.lateness else ""
        emit = "CHANGELOG" if self.changelog else "FINAL"
        if self.alternative is not None:
            test = f"{'NOT ' if self.kind == 'anti' else ''}EXISTS (SELECT 1 FROM r WHERE {' AND '.join(terms)})"
            return f"{streams} SELECT {columns} FROM l WHERE {self.alternative.sql} OR {test} EMIT {emit};"
        order = f" ORDER BY {self.probe}.ts" if self.ordered else ""
        settings = " SETTINGS join_algorithm = 'sliding'" if self.probe is not None else ""
        on = " AND ".join(terms)
        return f"{streams} SELECT {columns} FROM l {join} JOIN r ON {on}{grace}{order} EMIT {emit}{settings};"

    @property
    def is_in_order(self) -> bool:
        """Whether results come in the order of the probe side's times, all of them."""
        if self.probe is None or (self.buckets > 1 and not self.ordered):
            return False
        beside = {"l": ("right", "full", "right_semi", "right_anti"), "r": ("left", "full", "semi", "anti")}
        return self.kind not in beside[self.probe]

    def probe_time(self, row: tuple[Any, ...]) -> int:
        """The time of the probe side in a result."""
        time: int = row[self.sides.index(self.probe) * len(COLUMNS) + COLUMNS.index("ts")]
        return time

    @property
    def sides(self) -> tuple[str, ...]:
        """The streams whose columns results have."""
        return (ONE_SIDED[self.kind],) if self.kind in ONE_SIDED else STREAMS

    def reference(self, left: Sequence[Row], right: Sequence[Row], kind: Kind | None = None) -> list[Any]:
        return interval_join(
            left,
            right,
            kind or self.kind,
            on=[(key, key) for key, _ in self.keys],
            null_safe=[safe for _, safe in self.keys],
            times=("ts", "ts"),
            lo=self.lower if self.window is None else None,
            hi=self.upper if self.window is None else None,
            residual=self._tests,
            alternative=self.alternative.test if self.alternative is not None else None,
        )

    def _tests(self, left: Row, right: Row) -> bool | None:
        if self.window is not None and not self.window.matches(left, right):
            return False
        return self.residual is None or self.residual.test(left, right)

    def last_partner(self, stream: str, row: Row) -> int | None:
        """The last time of the other stream at which a row may find a partner; None if it finds none."""
        if self.window is not None:
            return self.window.last_partner(stream, row)
        last: int = row["ts"] + self.upper if stream == "l" else row["ts"] - self.lower
        return last

    def passes(self, row: Row) -> bool:
        """Whether a left row needs no partner."""
        return self.alternative is not None and self.alternative.test(row) is True

    def output(self, pair: tuple[Row | None, Row | None]) -> tuple[Any, ...]:
        rows = [row for stream, row in zip(STREAMS, pair, strict=True) if stream in self.sides]
        return tuple(row[name] if row is not None else None for row in rows for name in COLUMNS)


@dataclass(frozen=True)
class Feed:
    """One step: (stream, row) in order of arrival, and whether the process restarts before it."""

    rows: tuple[tuple[str, tuple[Any, ...]], ...]
    restart: bool = False

    def of(self, stream: str) -> list[tuple[Any, ...]]:
        return [row for name, row in self.rows if name == stream]


@st.composite
def shapes(draw: st.DrawFn, kind: Kind, *, alternatives: bool = False, windows: bool = False) -> Shape:
    lower = draw(st.integers(-6, 6))
    g = draw(st.sampled_from([None, False, True]))
    changelog = draw(st.booleans())
    may_be_late = not alternatives and (changelog or kind in ("inner", "semi", "right_semi"))
    return Shape(
        kind=kind,
        changelog=changelog,
        lower=lower,
        upper=lower + draw(st.sampled_from([0, 0, 1, 2, 5, 9])),
        keys=(("k", draw(st.booleans())), *([] if g is None else [("g", g)])),
        residual=draw(st.sampled_from(RESIDUALS)),
        grace=0 if alternatives else draw(st.sampled_from([0, 0, 1, 3])),
        buckets=draw(st.integers(1, 3)),
        alternative=draw(st.sampled_from(ALTERNATIVES)) if alternatives else None,
        window=draw(st.sampled_from(ROW_WINDOWS)) if windows else None,
        lateness=draw(st.sampled_from([0, 0, 2, 5])) if may_be_late else 0,
    )


def rows_of(draw: st.DrawFn, *, most: int = 14) -> list[tuple[str, tuple[Any, ...]]]:
    """Rows of both streams in order of arrival: time drifts up, some rows come (much) too late, some twice."""
    row = st.tuples(
        st.sampled_from(STREAMS),
        st.sampled_from([0, 0, 1, None]),
        st.sampled_from(["a", "a", "b", None]),
        st.sampled_from([0, 1, 2, None]),
        st.integers(-9, 4),
    )
    found: list[tuple[str, tuple[Any, ...]]] = []
    for i, (stream, k, g, v, jitter) in enumerate(draw(st.lists(row, min_size=1, max_size=most))):
        found.append((stream, (k, g, v, 2 * i + jitter)))
        if v == 1:
            found.append(found[-1])
    return found


def cut(draw: st.DrawFn, rows: list[Any]) -> list[Feed]:
    """The rows in some batches, with restarts between some of them."""
    feeds: list[Feed] = []
    start = 0
    while start < len(rows):
        size = draw(st.integers(1, 6))
        feeds.append(Feed(tuple(rows[start : start + size]), draw(st.integers(0, 3)) == 0))
        start += size
    return feeds


def disorder(rows: Sequence[tuple[str, tuple[Any, ...]]], stream: str) -> int:
    """How far the rows of a stream fall behind its newest one."""
    newest, most = BEGIN, 0
    for name, row in rows:
        if name == stream:
            newest = max(newest, row[-1])
            most = max(most, newest - row[-1])
    return most


def make_harness(shape: Shape, delays: dict[str, int]) -> Harness:
    return Harness(*load_script(shape.sql(delays)), buckets=shape.buckets)


def feed(harness: Harness, step: Feed) -> StepOutcome:
    if step.restart:
        harness.restart()
    return harness.step({name: StepInput(step.of(name)) for name in STREAMS if step.of(name)})


@dataclass
class Model:
    """The frontier and the accepted rows, after each step."""

    shape: Shape
    delays: dict[str, int]
    frontier: int = BEGIN
    newest: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STREAMS, BEGIN))
    heard: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STREAMS, BEGIN))  # their own frontiers
    accepted: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in STREAMS})
    kept: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in STREAMS})
    late: Counter[str] = field(default_factory=Counter)
    reopened: int = 0

    def take(self, step: Feed) -> None:
        fresh: dict[str, list[Row]] = {name: [] for name in STREAMS}
        for name, values in step.rows:
            row = dict(zip(COLUMNS, values, strict=True))
            self.newest[name] = max(self.newest[name], row["ts"])
            frontier = self.frontier_of(name)
            if row["ts"] >= frontier:
                fresh[name].append(row)
                self.reopened += frontier != BEGIN and row["ts"] < frontier + self.shape.lateness
            else:
                self.late[name] += 1
        for name, rows in fresh.items():
            self.accepted[name] += rows
        patience = self.shape.grace + self.shape.lateness
        self.heard = {
            name: BEGIN if newest == BEGIN else newest - self.delays[name] - patience
            for name, newest in self.newest.items()
        }
        if BEGIN not in self.newest.values():
            self.frontier = max(self.frontier, min(self.heard[name] - self.waits(name) for name in STREAMS))
        for name in STREAMS:
            self.kept[name] += [row for row in fresh[name] if not self._is_done(name, row)]

    def frontier_of(self, stream: str) -> int:
        """The time below which rows of a stream are late."""
        return self.frontier

    def waits(self, stream: str) -> int:
        """How far the frontier stays behind that of a stream."""
        return 0

    def _is_done(self, stream: str, row: Row) -> bool:
        """A row that comes out once, or never, and has its partner or needs none."""
        if ONE_SIDED.get(self.shape.kind) != stream:
            return False
        found = (
            self.shape.reference([row], self.accepted["r"], "semi")
            if stream == "l"
            else self.shape.reference(self.accepted["l"], [row], "right_semi")
        )
        return bool(found)

    def end(self) -> None:
        self.frontier = END

    def is_final(self, row: Row, stream: str) -> bool:
        last = self.shape.last_partner(stream, row)
        return last is None or last < self.frontier

    def answered(self, stream: str) -> list[Row]:
        """The rows of a stream that take part in results so far."""
        return self.accepted[stream]

    def results(self) -> Counter[Any]:
        """Return the expected accumulated output."""
        found: Counter[Any] = Counter()
        for pair in self.shape.reference(self.answered("l"), self.answered("r")):
            is_pair = self.shape.kind in ("semi", "right_semi") or (pair[0] is not None and pair[1] is not None)
            stream, row = ("l", pair[0]) if pair[0] is not None else ("r", pair[1])
            assert row is not None
            at_once = is_pair or self.shape.changelog or self.shape.passes(row)
            if at_once or self.is_final(row, stream):
                found[self.shape.output(pair)] += 1
        return found

    def state_rows(self) -> int:
        """Return for how many rows a partner may still arrive."""
        return sum(not self.is_final(row, name) for name in STREAMS for row in self.kept[name])


@dataclass
class SlidingModel(Model):
    """A sliding join: a probe row gives all its results once no row before it and no partner of it can come.

    So its frontier is that of answered probe rows, and rows are late by that of their own stream.
    """

    def is_due(self, row: Row) -> bool:
        return bool(row["ts"] < self.frontier)

    def frontier_of(self, stream: str) -> int:
        return max(self.frontier, self.heard[stream])

    def waits(self, stream: str) -> int:
        reach = self.shape.upper if self.shape.probe == "l" else -self.shape.lower
        return 0 if stream == self.shape.probe else max(reach, 0)

    def answered(self, stream: str) -> list[Row]:
        return [row for row in self.accepted[stream] if stream != self.shape.probe or self.is_due(row)]

    def is_final(self, row: Row, stream: str) -> bool:
        last = self.shape.last_partner(stream, row)
        return self.is_due(row) if stream == self.shape.probe else last is None or last < self.frontier

    def _is_done(self, stream: str, row: Row) -> bool:
        """Of the build side: it has been answered, by a probe row of this step."""
        if ONE_SIDED.get(self.shape.kind) != stream or stream == self.shape.probe:
            return False
        rows = {name: self.answered(name) for name in STREAMS} | {stream: [row]}
        return bool(self.shape.reference(rows["l"], rows["r"], "semi" if stream == "l" else "right_semi"))
