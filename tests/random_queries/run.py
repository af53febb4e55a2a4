"""One example: a query, its streams and its feed; how it runs, what DuckDB answers, and what is wrong."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cmp_to_key, partial
from typing import Any, Protocol

import duckdb
import pyarrow as pa

from tests.random_queries.query import Form, OrderTerm, Query
from tests.random_queries.render import duckdb_sql, output_columns, watersmeet_sql
from tests.random_queries.rows import Feed, Step, Streams
from watersmeet.catalog.streams import StreamDef
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.kernels.api import EmitMode
from watersmeet.sql import statements
from watersmeet.testing.harness import Harness, StepInput, StepOutcome, load_script

END = (Event(EventKind.END),)
_COLUMNS = {"id": pa.int32(), "k": pa.string(), "v": pa.int32(), "ts": pa.int64()}  # those of rows.py
_TABLE = pa.schema([*_COLUMNS.items(), ("seq", pa.int64()), ("step", pa.int64())])

Result = tuple[Any, ...]


class MakeHarness(Protocol):
    """Makes what a query runs in."""

    def __call__(
        self, streams: Mapping[str, StreamDef], query: statements.Query | statements.StatementSet, /, *, buckets: int
    ) -> Harness: ...


@dataclass(frozen=True)
class Example:
    """All that a run needs."""

    streams: Streams
    query: Query
    feed: Feed
    buckets: int

    def answers(self, *, only_last: bool) -> list[Counter[Result]]:
        """What DuckDB answers after each step, or only after the last."""
        return batch_answers(self.streams, self.feed, duckdb_sql(self.query), {}, only_last=only_last)

    def case(self) -> str:
        """The example as a case in the notation of docs/testing.md, but for what must come out; and in DuckDB."""
        lines = [f"\n{self.streams.sql()}{watersmeet_sql(self.query)};", ""]
        for step in self.feed.steps:
            lines += [">>> restart"] if step.restart else []
            for name, changes in step.changes.items():
                lines += [f">>> {name}", *(line(change[:4], change[4]) for change in changes)]
            lines += ["<<<", ""]
        lines += [f">>> end{' (with the last step)' if self.feed.ends_with_last else ''}", "<<<", ""]
        return "\n".join([*lines, f"-- {self.buckets} bucket(s); in DuckDB:", duckdb_sql(self.query), ""])


def line(row: Result, weight: int = 1) -> str:
    """A row as it stands in a case."""
    return f"{'- ' if weight < 0 else ''}{', '.join(map(_cell, row))}"


def _cell(value: int | str | None) -> str:
    return "NULL" if value is None else str(value) or "''"


def batch_answers(
    streams: Streams, feed: Feed, sql: str, tables: Mapping[str, pa.Table], *, only_last: bool
) -> list[Counter[Result]]:
    """What DuckDB answers over whole tables after each step: those of the streams, and others.

    ``seq`` is a row's place in the order of arrival, ``step`` the step in which it came.
    """
    answers = []
    last = len(feed.steps)
    came = {name: feed.step_of_each(name) for name in streams.streams}
    with duckdb.connect(config={"threads": 1}) as connection:
        for name, table in tables.items():
            connection.register(name, table)
        for step in range(last if only_last else 1, last + 1):
            for name, stream in streams.streams.items():
                rows = [(*row, seq, came[name][seq]) for seq, row in stream.holding(feed.arrived(name, step))]
                columns = [[row[i] for row in rows] for i in range(len(_TABLE))]
                connection.register(name, pa.table(columns, schema=_TABLE))
            answers.append(Counter(connection.execute(sql).fetchall()))
    return answers


class Run:
    """The query in the harness, fed step by step."""

    def __init__(self, example: Example, harness: MakeHarness) -> None:
        self._example = example
        self._harness = harness(
            *load_script(example.streams.sql() + watersmeet_sql(example.query)), buckets=example.buckets
        )
        # what is computed in the SELECT list may look the same of rows that differ, and of a step that is taken in
        # pieces, one may give a row that another takes back
        self._gives_net_changes = self._harness.max_step_bytes is None and all(
            source.form in (Form.PLAIN, Form.FILTERED) for source in example.query.sources
        )
        self.is_final = self._harness.plan.emission.mode is EmitMode.FINAL
        self.total: Counter[Result] = Counter()
        self.given: list[Result] = []

    def complaints(self, answers: Sequence[Counter[Result]]) -> Iterator[str]:
        """Feed everything; what is wrong after each step (in a changelog) and at the end."""
        read = [name for name in self._example.streams.streams if self._harness.inputs_of(name)]
        feed = self._example.feed
        counters: dict[str, int] = {}
        for number, step in enumerate(feed.steps, 1):
            if step.restart:
                self._harness.restart()
            events = END if feed.ends_with_last and number == len(feed.steps) else ()
            outcome = self._harness.step({name: self._fed(name, step) for name in read}, events)
            yield from self._taken(outcome, f"step {number}")
            if not self.is_final:
                yield from self._differing(answers[number - 1], f"step {number}")
            counters = outcome.counters
        if not feed.ends_with_last:
            outcome = self._harness.step({}, END)
            yield from self._taken(outcome, "the end")
            counters = outcome.counters
        yield from _miscounted(counters)
        yield from _out_of_order(self.given, self._example.query)
        yield from self._differing(answers[-1], "the end")

    def _fed(self, name: str, step: Step) -> StepInput:
        changes = step.changes.get(name, ())
        return StepInput(changes if self._example.streams.streams[name].key else [change[:4] for change in changes])

    def _differing(self, answer: Counter[Result], when: str) -> Iterator[str]:
        if self.total != answer:
            yield f"{when}: missing {dict(answer - self.total)}, unexpected {dict(self.total - answer)}"

    def _taken(self, outcome: StepOutcome, when: str) -> Iterator[str]:
        for weight, row in outcome.changes:
            self.total[row] += weight
        self.given += [row for _, row in outcome.changes]
        taken_back = {row for weight, row in outcome.changes if weight < 0}
        if self.is_final and taken_back:
            yield f"{when}: EMIT FINAL takes rows back: {outcome.changes}"
        if self._gives_net_changes and (both := taken_back & {row for weight, row in outcome.changes if weight > 0}):
            yield f"{when}: rows taken back and given in one step: {both}"
        if negative := {row: count for row, count in self.total.items() if count < 0}:
            yield f"{when}: rows taken back that were not given: {negative}"
        self.total += Counter()  # drops what has come to 0


def _miscounted(counters: dict[str, int]) -> Iterator[str]:
    """Rows in = used + filtered + late + quarantined, of every source; and none is late here."""
    sources: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for name, value in counters.items():
        _, counter, *source = name.split(".", 2)
        if source:
            sources[source[0]][counter] += value
    for source_name, counts in sources.items():
        if "in" in counts and counts["in"] != sum(counts[each] for each in ("used", "filtered", "late", "quarantined")):
            yield f"the rows of {source_name} do not add up: {dict(counts)}"
        if counts["late"] or counts["quarantined"]:
            yield f"rows of {source_name} late or quarantined: {dict(counts)}"


def _out_of_order(given: Sequence[Result], query: Query) -> Iterator[str]:
    """Rows in the order of ORDER BY; rows that lack its time have no place."""
    if not query.order:
        return
    names = output_columns(query)
    places = [names.index(f"{term.alias}_{term.column}") for term in query.order]
    found = [[row[place] for place in places] for row in given if row[places[0]] is not None]
    wanted = sorted(found, key=cmp_to_key(partial(_compared, order=query.order)))
    if found != wanted:
        yield f"ordered {found}"


def _compared(one: Sequence[Any], other: Sequence[Any], order: Sequence[OrderTerm]) -> int:
    """By term: NULLs first in rising order, last in falling order; text by its bytes."""
    for value, against, term in zip(one, other, order, strict=True):
        low, high = _rank(value), _rank(against)
        if low != high:
            return 1 if (low > high) is not term.descending else -1
    return 0


def _rank(value: int | str | None) -> tuple[bool, int, bytes]:
    if isinstance(value, str):
        return True, 0, value.encode()
    return value is not None, value or 0, b""
