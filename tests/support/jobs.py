"""Small jobs for tests on Spark: inputs in files, a run to its end, and its output."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import duckdb

from watersmeet.runtime.query import RunningQuery
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Started
from watersmeet.session.session import Session

PATIENCE_SECONDS = 120.0
#: For the JVM of a test: what it would compile well, and collect beside short queries, takes longer than it saves.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"


def environment() -> dict[str, str]:
    """That of this process, for one that starts a Spark of its own."""
    return {**os.environ, "PYSPARK_SUBMIT_ARGS": f"--driver-java-options '{QUICK_JVM}' pyspark-shell"}


def run_job(session: Session, script: str, mode: QueryMode = QueryMode.BOUNDED) -> list[RunningQuery]:
    """Carry out all statements, each query to its end before the next; the queries come back."""
    queries = []
    for result in session.run(script, mode):
        if isinstance(result, Started):
            assert result.query.wait(PATIENCE_SECONDS), f"{result.query.name} has not come to an end"
            queries.append(result.query)
    return queries


def write_lines(path: Path, lines: Sequence[str], *, age: int) -> None:
    """A text file in a folder that may have to be made; the smaller its age, the earlier a stream reads it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    hidden.write_text("".join(f"{line}\n" for line in lines))
    os.utime(hidden, (1_700_000_000 + age, 1_700_000_000 + age))
    hidden.rename(path)


def json_lines(rows: Sequence[tuple[object, ...]], names: Sequence[str]) -> list[str]:
    """Rows as JSON objects."""
    return [json.dumps(dict(zip(names, row, strict=True))) for row in rows]


def json_rows(folder: Path) -> list[tuple[object, ...]]:
    """All rows of a folder's JSON files, sorted, a doubled one as often as it is there."""
    lines = [line for path in folder.glob("*.json") for line in path.read_text().splitlines()]
    return sorted((tuple(json.loads(line).values()) for line in lines), key=repr)


def batch_answer(sql: str, **tables: tuple[Sequence[str], Sequence[tuple[object, ...]]]) -> list[tuple[object, ...]]:
    """What DuckDB answers over whole tables (names of columns, rows), sorted as ``json_rows`` does."""
    import pyarrow as pa

    with duckdb.connect() as connection:
        for name, (columns, rows) in tables.items():
            connection.register(name, pa.table(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))))
        return sorted(connection.sql(sql).fetchall(), key=repr)
