"""Queries that share stores, on Spark: one run feeds several sinks, also where it fails between two of them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.support.jobs import batch_answer, json_rows, run_job
from watersmeet.catalog.streams import StreamDef
from watersmeet.connectors import registry
from watersmeet.errors import CatalogError, UnsupportedError, WatersmeetError
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Plan
from watersmeet.session.session import Session

pytestmark = pytest.mark.spark

STREAMS = "".join(
    f"CREATE STREAM {name} (id INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS) "
    "WITH (event_time_unit = 's');"
    for name in ("orders", "paid", "sent")
)
SET = """
EXECUTE STATEMENT SET BEGIN
  INSERT INTO pairs SELECT o.id, o.v, o.ts, p.ts AS pts FROM orders o LEFT JOIN paid p ON o.id = p.id
    WITHIN INTERVAL '6' SECONDS;
  INSERT INTO all_three SELECT o.id, o.v, p.v AS pv, s.v AS sv FROM orders o JOIN paid p ON o.id = p.id
    JOIN sent s ON s.id = p.id WITHIN INTERVAL '9' SECONDS WHERE o.v > 2 AND lpad(p.v, 3, s.v) <> '003';
  INSERT INTO pairs SELECT s.id, s.v, s.ts, o.ts AS pts FROM sent s JOIN orders o ON o.id = s.id AND o.v < 3
    WITHIN INTERVAL '4' SECONDS;
END;
"""
PAIRS = """
SELECT o.id, o.v, o.ts, p.ts FROM o LEFT JOIN p ON o.id = p.id AND abs(o.ts - p.ts) <= 6
UNION ALL SELECT s.id, s.v, s.ts, o.ts FROM s JOIN o ON o.id = s.id AND o.v < 3 AND abs(o.ts - s.ts) <= 4
"""
ALL_THREE = """
SELECT o.id, o.v, p.v, s.v FROM o JOIN p ON o.id = p.id AND abs(o.ts - p.ts) <= 9
JOIN s ON s.id = p.id AND abs(o.ts - s.ts) <= 9 AND abs(p.ts - s.ts) <= 9
WHERE o.v > 2 AND lpad(p.v::TEXT, 3, s.v::TEXT) <> '003'
"""
NAMES = ("id", "v", "ts")
Rows = list[tuple[object, ...]]


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Session:
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    session.sql(STREAMS)
    for name in ("pairs", "all_three"):
        session.sql(f"CREATE STREAM {name} WITH (connector = 'files', path = '{tmp_path / name}', format = 'json')")
    return session


def feed(session: Session, fed: dict[str, Rows], chance: random.Random, seconds: range) -> None:
    """Add rows to each stream, out of order by less than its delay."""
    for name, rows in fed.items():
        added = [(chance.randrange(5), chance.randrange(6), second + chance.randrange(5)) for second in seconds]
        session.sql(f"INSERT INTO {name} VALUES {', '.join(map(str, added))}")
        rows += added


def check(tmp_path: Path, fed: dict[str, Rows]) -> None:
    tables = {alias: (NAMES, fed[name]) for alias, name in (("o", "orders"), ("p", "paid"), ("s", "sent"))}
    assert json_rows(tmp_path / "pairs") == batch_answer(PAIRS, **tables)
    assert json_rows(tmp_path / "all_three") == batch_answer(ALL_THREE, **tables)


def test_a_set_writes_what_its_queries_would(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three queries, two of them into one sink; a run fails after the first sink, and the next one goes on."""
    chance = random.Random(7)
    fed: dict[str, Rows] = {"orders": [], "paid": [], "sent": []}
    feed(session, fed, chance, range(40))
    with monkeypatch.context() as patched:
        patched.setattr(registry, "open_sink", partial(failing_sink, registry.open_sink))
        with pytest.raises(WatersmeetError, match="no space left"):
            run_job(session, SET, QueryMode.DRAIN)
    feed(session, fed, chance, range(40, 60))
    session.sql("INSERT INTO orders VALUES (1, 1, NULL)")
    (query,) = run_job(session, SET)
    check(tmp_path, fed)
    assert query.name == "into_pairs_from_orders_paid_and_2_more"
    assert query.report().rows_in == {"orders": 61, "paid": 60, "sent": 60}
    assert (query.report().used["orders"], query.report().quarantined["orders"]) == (60, 1)
    (side,) = [line for path in session.workspace.rglob("*.jsonl") for line in path.read_text().splitlines()]
    assert json.loads(side)["reason"] == "the event time is NULL"

    explained = session.sql(f"EXPLAIN {SET}")
    assert isinstance(explained, Plan)
    assert "statistics of its last batch: 0 rows held" in explained.text
    assert "store of orders: rows up to 9 s behind the frontier; read by query 1 as o" in explained.text
    assert "filter after the joins: LPAD" in explained.text


def failing_sink(open_sink: Callable[..., Any], target: StreamDef, *args: Any, **others: Any) -> _Failing:
    return _Failing(open_sink(target, *args, **others), target.name)


class _Failing:
    """A sink whose write of a target fails."""

    def __init__(self, sink: Any, target: str) -> None:
        self._sink, self._target = sink, target

    def write(self, *args: Any) -> object:
        if self._target == "all_three":
            raise WatersmeetError("no space left")
        return self._sink.write(*args)


def test_a_running_set_and_a_repeated_statement_are_refused(session: Session) -> None:
    one = "INSERT INTO pairs SELECT o.id, o.v, o.ts, p.ts FROM orders o JOIN paid p ON o.id = p.id"
    with pytest.raises(UnsupportedError, match="in the set already"):
        session.sql(f"EXECUTE STATEMENT SET BEGIN {one}; {one}; END")
    session.sql(SET)
    with pytest.raises(CatalogError, match="is running already"):
        session.sql(SET)
    with pytest.raises(CatalogError, match="used by a running query: into_pairs_from_orders_paid_and_2_more"):
        session.sql("DROP STREAM all_three")
    session.sql("STOP QUERY into_pairs_from_orders_paid_and_2_more")
