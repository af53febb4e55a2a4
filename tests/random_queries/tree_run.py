"""One example of a tree of queries (trees.py): how it runs, what DuckDB answers, and what is wrong with what comes out.

A changelog must add up to the batch answer after every step; what is final is given once, and all of it at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.random_queries.lookups import Table, TableFiles
from tests.random_queries.rows import Feed, Streams
from tests.random_queries.run import END, MakeHarness, Result, batch_answers, line
from tests.random_queries.trees import Tree
from watersmeet.kernels.api import EmitMode
from watersmeet.testing.harness import Harness, StepInput, load_script


@dataclass(frozen=True)
class Example:
    """All that a run needs.

    With ``small``, harnesses take batches row by row; ``compares_steps`` says that the results of a changelog follow
    each step.  ``tables`` are those that the query looks rows up in.
    """

    streams: Streams
    tree: Tree
    emit: str
    feed: Feed
    buckets: int
    small: bool
    compares_steps: bool = True
    tables: tuple[Table, ...] = ()
    settings: str = ""

    def script(self, folder: Path) -> str:
        """The statements, for tables in a folder."""
        tables = "".join(table.sql(folder) for table in self.tables)
        return f"{self.streams.sql()}{tables}{self.tree.sql(duck=False)}{self.emit}{self.settings}"

    def answers(self, *, only_last: bool) -> list[Counter[Result]]:
        """What DuckDB answers after each step, or only after the last."""
        tables = {table.name: table.versions(len(self.feed.steps)) for table in self.tables}
        return batch_answers(self.streams, self.feed, self.tree.sql(duck=True), tables, only_last=only_last)

    def case(self) -> str:
        """The example as a case in the notation of docs/testing.md, but for what must come out; and in DuckDB."""
        lines = [f"\n{self.script(Path())};", ""]
        for number, step in enumerate(self.feed.steps, 1):
            lines += [">>> restart"] if step.restart else []
            for table in self.tables:
                if number == 1 or table.at(number) != table.at(number - 1):
                    lines += [f">>> table {table.name}", *map(line, table.at(number))]
            for name, changes in step.changes.items():
                lines += [f">>> {name}", *(line(change[:4], change[4]) for change in changes)]
            lines += ["<<<", ""]
        lines += [f">>> end{' (with the last step)' if self.feed.ends_with_last else ''}", "<<<", ""]
        return "\n".join([*lines, f"-- {self.buckets} bucket(s); in DuckDB:", self.tree.sql(duck=True), ""])


def complaints(example: Example, make: MakeHarness) -> list[str]:
    """Run an example; what is wrong.  Raises ``WatersmeetError`` if the query is refused."""
    with TemporaryDirectory(prefix="watersmeet-tables-") as folder:
        files = TableFiles(example.tables, Path(folder))
        with files.planned():
            harness = make(*load_script(example.script(Path(folder))), buckets=example.buckets)
        return list(_complaints(example, harness, files))


def _complaints(example: Example, harness: Harness, files: TableFiles) -> Iterator[str]:
    """Feed everything; what is wrong after each step of a changelog, and at the end."""
    final = harness.plan.emission.mode is EmitMode.FINAL
    at_once = not final and example.compares_steps and "CHANGELOG" in example.emit
    answers = example.answers(only_last=not at_once)
    total: Counter[Result] = Counter()
    feed = example.feed
    counters: Mapping[str, int] = {}
    has_begun = False
    for number in range(len(feed.steps) + (not feed.ends_with_last)):
        last = number >= len(feed.steps) - feed.ends_with_last
        files.begin(number + 1, harness)
        if number < len(feed.steps) and feed.steps[number].restart:
            harness.restart()
        inputs = _inputs(example, harness, number)
        has_begun = has_begun or bool(inputs) or last  # before its first rows a query has no batch
        outcome = harness.step(inputs, END if last else ())
        counters = outcome.counters
        for weight, row in outcome.changes:
            total[row] += weight
            if final and weight < 0:
                yield f"step {number}: final, but takes back {row}"
        total = Counter({row: count for row, count in total.items() if count})
        if any(count < 0 for count in total.values()):
            yield f"step {number}: below zero {total}"
        answer = answers[min(number, len(answers) - 1)]
        if has_begun and (at_once or last) and total != answer:
            yield f"step {number}: missing {dict(answer - total)}, unexpected {dict(total - answer)}"
    if any(count for name, count in counters.items() if name.split(".")[1] in ("late", "quarantined")):
        yield f"rows late or quarantined: {counters}"


def _inputs(example: Example, harness: Harness, number: int) -> dict[str, StepInput]:
    if number >= len(example.feed.steps):
        return {}
    return {
        name: StepInput(changes if example.streams.streams[name].key else [each[:4] for each in changes])
        for name, changes in example.feed.steps[number].changes.items()
        if harness.inputs_of(name)
    }
