"""`watersmeet replace` on Spark: queries that go on as others, with their state or as new versions."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.support.jobs import PATIENCE_SECONDS, json_lines, write_lines
from watersmeet.errors import CatalogError, CheckpointError, ConfigError, UnsupportedError
from watersmeet.plan.replacing import Way
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.replacing import JobReplaced
from watersmeet.session.results import Started
from watersmeet.session.session import Session

pytestmark = pytest.mark.spark

Row = tuple[Any, ...]
O_COLUMNS, P_COLUMNS = "id INT, v INT, ts BIGINT", "id INT, ts BIGINT"


class Folder:
    """A job over two streams of files, which writes to a third; its text changes between runs."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.session: Session = watersmeet.connect(spark, folder / "workspace")
        self.o: list[Row] = []
        self.p: list[Row] = []
        for name in ("o", "p", "out"):
            (folder / name).mkdir()

    def job(self, query: str, o: str = O_COLUMNS, sink: str = "") -> str:
        def stream(name: str, columns: str) -> str:
            return (
                f"CREATE STREAM {name} ({columns}, WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS) WITH"
                f" (connector = 'files', path = '{self.folder}/{name}', event_time_unit = 's');"
            )

        out = f"CREATE STREAM out WITH (connector = 'files', path = '{self.folder}/out'{sink});"
        return f"{stream('o', o)} {stream('p', P_COLUMNS)} {out} INSERT INTO out {query};"

    def feed(self, number: int, *, extra: str | None = None) -> None:
        chance = random.Random(number)
        times = [6 * number + chance.randrange(8) for _ in range(16)]
        o = [(chance.randrange(5), chance.randrange(100), time) for time in times]
        p = [(chance.randrange(5), time + chance.randrange(-2, 3)) for time in times]
        self.o += o
        self.p += p
        names = ("id", "v", "ts") if extra is None else ("id", "v", "ts", extra)
        rows = o if extra is None else [(*row, f"c{row[1]}") for row in o]
        write_lines(self.folder / "o" / f"{number}.json", json_lines(rows, names), age=100 - number)
        write_lines(self.folder / "p" / f"{number}.json", json_lines(p, ("id", "ts")), age=100 - number)

    def run(self, text: str, mode: QueryMode = QueryMode.DRAIN) -> None:
        self.session = watersmeet.connect(self.spark, self.folder / "workspace")  # as in a process of its own
        for result in self.session.run(text, mode):
            if isinstance(result, Started):
                assert result.query.wait(PATIENCE_SECONDS)

    def replace(self, text: str, **options: Any) -> JobReplaced:
        return self.session.replace(text, **options)

    def results(self) -> Counter[Row]:
        lines = [
            line for path in sorted((self.folder / "out").glob("*.json")) for line in path.read_text().splitlines()
        ]
        return Counter(tuple(sorted(json.loads(line).items())) for line in lines)

    def checkpoint(self) -> Path:
        (found,) = (self.folder / "workspace" / "queries").iterdir()
        return found


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Folder:
    return Folder(spark, tmp_path)


def join(window: int, items: str = "o.id, o.ts, p.ts AS pts", kind: str = "", end: str = "", where: str = "") -> str:
    return f"SELECT {items} FROM o {kind} JOIN p ON o.id = p.id WITHIN INTERVAL '{window}' SECONDS{where} {end}"


def pairs(o: Sequence[Row], p: Sequence[Row], window: int) -> Counter[Row]:
    return Counter(
        (("id", a[0]), ("pts", b[1]), ("ts", a[2])) for a in o for b in p if a[0] == b[0] and abs(a[2] - b[1]) <= window
    )


def newer(rows: Counter[Row], after: int) -> Counter[Row]:
    def is_newer(row: Row) -> bool:
        values = dict(row)
        return any(values[name] is not None and values[name] > after for name in ("ts", "pts"))

    return Counter({row: count for row, count in rows.items() if is_newer(row)})


def test_a_longer_window_goes_on_with_the_state(folder: Folder) -> None:
    old, new = folder.job(join(3)), folder.job(join(9))
    for numbers in ((0, 1), (2,)):
        for number in numbers:
            folder.feed(number)
        folder.run(old)
    before = folder.results()
    assert before == pairs(folder.o, folder.p, 3)
    (dry,) = folder.replace(new, dry_run=True).queries
    assert dry.verdict.way is Way.CHANGED
    folder.run(old)  # nothing has changed
    (done,) = folder.replace(new, start="stored").queries
    assert not done.is_new_version  # its state fits, and no query was named
    assert done.complete_after is not None
    assert done.complete_after == dry.complete_after
    with pytest.raises(CheckpointError, match="has changed since"):
        folder.run(old)
    for numbers, mode in (((3, 4), QueryMode.DRAIN), ((5,), QueryMode.BOUNDED)):
        for number in numbers:
            folder.feed(number)
        folder.run(new, mode)
    after = done.complete_after // 1_000_000
    found, always = folder.results(), pairs(folder.o, folder.p, 9)
    assert newer(found, after) == newer(always, after) != Counter()
    assert found - always == Counter()
    assert before - found == Counter()
    assert sorted(path.name for path in folder.checkpoint().glob("spark*")) == ["spark-1"]


@pytest.mark.slow
def test_a_select_list_goes_on_as_it_is_and_is_noted(folder: Folder) -> None:
    old, new = folder.job(join(3)), folder.job(join(3, "o.id + 1 AS n, p.ts AS pts, o.ts", where=" WHERE o.ts > 0"))
    folder.feed(0)
    folder.run(old)
    (dry,) = folder.replace(new, dry_run=True).queries
    assert dry.verdict.way is Way.AS_IT_IS
    assert [text.split(":")[0] for text in dry.verdict.texts] == ["SELECT list", "conditions on rows of o"]
    assert dry.complete_after is not None
    folder.replace(new)
    (again,) = folder.replace(new).queries
    assert again.verdict.is_same
    folder.feed(1)
    folder.run(new, QueryMode.BOUNDED)
    assert any(("n", 1) in row for row in folder.results())


@pytest.mark.slow
@pytest.mark.parametrize("start", ["stored", "beginning"])
def test_a_new_version_begins_where_the_old_one_ends(folder: Folder, start: str) -> None:
    old = folder.job(join(3))
    new = folder.job(join(3, kind="LEFT", end="EMIT FINAL"))
    for number in range(3):
        folder.feed(number)
        folder.run(old)
    before, seen = folder.results(), (len(folder.o), len(folder.p))
    with pytest.raises(CheckpointError, match="needs a new version") as raised:
        folder.replace(new)
    assert "--from stored" in str(raised.value)
    (dry,) = folder.replace(new, dry_run=True).queries
    assert dry.is_new_version
    (done,) = folder.replace(new, start=start).queries
    assert done.is_new_version
    for number in range(3, 6):
        folder.feed(number)
        folder.run(new, QueryMode.BOUNDED if number == 5 else QueryMode.DRAIN)
    found = folder.results() - before
    assert before - folder.results() == Counter()
    matched = Counter({row: n for row, n in found.items() if dict(row)["pts"] is not None})
    everything = pairs(folder.o, folder.p, 3)
    if start == "beginning":
        assert done.counts is not None
        assert not done.counts.rows_differ
        assert matched == everything - before
        lonely = Counter(
            (("id", a[0]), ("pts", None), ("ts", a[2]))
            for a in folder.o
            if not any(a[0] == b[0] and abs(a[2] - b[1]) <= 3 for b in folder.p)
        )
        padded = found - matched
        assert padded - lonely == Counter()
        late = newer(lonely, max(row[2] for row in folder.o[: seen[0]]))
        assert newer(padded, max(row[2] for row in folder.o[: seen[0]])) == late != Counter()
    else:
        assert matched == pairs(folder.o[seen[0] :], folder.p[seen[1] :], 3)


@pytest.mark.slow
def test_an_aggregate_gets_a_new_version_for_a_table(folder: Folder) -> None:
    keyed = ", changelog = 'true'"
    old = folder.job("SELECT o.id, count() AS n FROM o GROUP BY o.id", sink=keyed)
    new = folder.job("SELECT o.id, max(o.v) AS n FROM o GROUP BY o.id", sink=keyed)
    folder.feed(0)
    folder.run(old)
    with pytest.raises(UnsupportedError, match="takes every change"):
        folder.replace(new, start="beginning")
    folder.replace(new, start="stored")
    folder.run(new)


@pytest.mark.slow
def test_a_stream_gets_columns_and_wider_types(folder: Folder) -> None:
    old = folder.job(join(3, "o.id, o.v, o.ts, p.ts AS pts"))
    for number in range(2):
        folder.feed(number)
        folder.run(old)
    new = folder.job(join(3, "o.id, o.v, o.ts, p.ts AS pts, o.city"), o="id INT, v BIGINT, ts BIGINT, city STRING")
    with pytest.raises(CatalogError, match="there is a stream o already"):
        folder.run(new)
    dry = folder.replace(new, dry_run=True)
    assert dry.definitions == ("stream o: v was INT, is BIGINT (wider); city STRING is added",)
    with pytest.raises(CatalogError, match="there is a stream o already"):
        folder.run(new)
    assert folder.replace(new).queries[0].verdict.way is Way.CHANGED
    before = folder.results()
    folder.feed(2, extra="city")
    folder.run(new, QueryMode.BOUNDED)
    found = [dict(row) for row in (folder.results() - before).elements()]
    assert {row["city"] for row in found} > {None}
    assert all(row["city"] in (None, f"c{row['v']}") for row in found)
    plain = Counter(
        (("id", row["id"]), ("pts", row["pts"]), ("ts", row["ts"])) for row in map(dict, folder.results().elements())
    )
    assert plain == pairs(folder.o, folder.p, 3)


@pytest.mark.slow
def test_a_column_is_not_dropped_while_another_query_reads_it(folder: Folder) -> None:
    job = folder.job(join(3))
    other = job.rpartition("INSERT")[0] + "CREATE STREAM vs AS SELECT v, ts FROM o;"
    folder.feed(0)
    folder.run(job)
    folder.run(other)
    new = folder.job(join(3), o="id INT, ts BIGINT")
    with pytest.raises(CatalogError, match="o cannot lose v: query vs reads it"):
        folder.replace(new)
    folder.session.sql("DROP STREAM vs")
    assert folder.replace(new).definitions == ("stream o: v is dropped",)
    folder.feed(1)
    folder.run(new, QueryMode.BOUNDED)
    assert folder.results() == pairs(folder.o, folder.p, 3)


@pytest.mark.slow
def test_what_cannot_be_replaced_is_refused_in_words(folder: Folder) -> None:
    job = folder.job(join(3))
    with pytest.raises(CheckpointError, match="there is nothing to replace"):
        folder.replace(job)
    folder.feed(0)
    (started,) = (each for each in folder.session.run(job) if isinstance(each, Started))
    with pytest.raises(CatalogError, match="is running already"):
        folder.replace(job)
    started.query.stop()
    with pytest.raises(ConfigError, match="--from yesterday"):
        folder.replace(job, start="yesterday")
    with pytest.raises(CatalogError, match="the job has no query other"):
        folder.replace(job, query="other")
    folder.run(job)
    said = folder.checkpoint() / "query.json"
    said.write_text("{")
    assert "not known" in folder.replace(job, dry_run=True).queries[0].verdict.texts[0]
    with pytest.raises(CheckpointError, match="needs a new version"):
        folder.replace(folder.job(join(9)))
    plan = folder.checkpoint() / "plan.json"
    plan.write_text(plan.read_text().replace('"mode"', '"node"'))
    with pytest.raises(CheckpointError, match=r"plan.json does not match the checksum"):
        folder.replace(job)
