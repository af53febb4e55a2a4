"""Plans of lookups: EXPLAIN, no state, the catalogue's format, `watersmeet explain`."""

from __future__ import annotations

from pathlib import Path

import pytest

from watersmeet.bind.define import define_outside
from watersmeet.bind.planning import plan_query
from watersmeet.catalog.catalog import Catalog
from watersmeet.cli.explain import explain_script
from watersmeet.errors import BindError, CatalogError, ConfigError, UnsupportedError, WatersmeetError
from watersmeet.plan.explain import explain
from watersmeet.testing.harness import Harness, StepInput, load_script

STREAMS = "CREATE STREAM o (id INT, cid BIGINT, s STRING);"
TABLE = (
    "CREATE TABLE customers (id INT, name STRING, tier STRING, notes STRING) WITH (connector = 'jdbc', "
    "url = 'jdbc:postgresql://db/shop', table = 'customers', user = 'reader', password = '${env:SHOP_PASSWORD}'"
)
QUERY = (
    "SELECT o.id, c.name FROM o LEFT JOIN customers FOR SYSTEM_TIME AS OF PROCTIME() c "
    "ON o.cid = c.id AND c.tier < upper(o.s)"
)


def explained(options: str = "") -> list[str]:
    streams, query = load_script(f"{STREAMS}{TABLE}{options});{QUERY}")
    return explain(plan_query(query, streams)).splitlines()


def test_explain_tells_table_key_cache_and_what_happens_on_errors() -> None:
    lines = explained()
    start = lines.index("join_1: left lookup, at once and never revised, by key hash")
    assert lines[start + 1 : start + 8] == [
        (
            "  table c (customers, jdbc): url = 'jdbc:postgresql://db/shop', table = 'customers', user = 'reader', "
            "password = '${env:SHOP_PASSWORD}'"
        ),
        "  key o.cid = c.id; NULL is not asked for",
        "  tested on each row found: (c.tier < UPPER(o.s))",
        "  asks for c.id, c.tier, c.name; one query for all keys of a batch",
        "  cache: up to 100,000 rows of a worker process, 60 s",
        "  time-out 10 s; 3 retries, then the query stops (lookup_on_error = 'fail')",
        "  state: none",
    ]


def test_explain_tells_options_that_are_set() -> None:
    lines = explained(
        ", lookup_cache_rows = 0, lookup_timeout = '1 s', lookup_max_retries = 0, lookup_on_error = 'null'"
    )
    assert "  cache: none" in lines
    assert "  time-out 1 s; 0 retries, then keys count as not found (lookup_on_error = 'null')" in lines


def fingerprints(table: str, query: str = QUERY) -> list[str]:
    return [spec.fingerprint for spec in Harness(*load_script(f"{STREAMS}{table};{query}"))._operators]


def test_how_the_table_is_reached_may_change_under_a_checkpoint_and_the_key_may_not() -> None:
    before = fingerprints(f"{TABLE})")
    assert before == fingerprints(
        f"{TABLE}, lookup_cache_rows = 5, lookup_on_error = 'retry')".replace("//db", "//other")
    )
    assert before != fingerprints(f"{TABLE})", QUERY.replace("o.cid", "o.id"))


def test_counters_are_those_of_all_buckets() -> None:
    harness = Harness(*load_script(f"{STREAMS}{TABLE});{QUERY}"), buckets=3)
    harness.fill("customers", [(number, f"name {number}", "a", None) for number in range(10)])
    rows = [(number, number % 12, "b") for number in range(24)]
    harness.step({"o": StepInput(rows)})
    counters = harness.step({"o": StepInput([(1, 1, "b"), (2, 50, "b")])}).counters
    assert counters["join_1.lookup_misses"] == 13
    assert counters["join_1.lookup_hits"] == 1
    assert counters["join_1.lookup_fetched"] == 10
    assert counters["join_1.lookup_failed"] == 0
    assert counters["join_1.state_rows"] == 0


def test_a_catalogue_keeps_a_table(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    table = define_outside("c", "id INT, `a b` DECIMAL(4, 2)", {"connector": "files", "path": "/c"})
    catalog.add(table)
    assert Catalog(tmp_path).get("C") == table
    catalog.drop("c")
    assert Catalog(tmp_path).streams() == {}


@pytest.mark.parametrize("columns", ["", "id", "id BLUB", "id INT,, x INT", "id INT) WITH (connector = 'x'", "1"])
def test_columns_from_python_that_cannot_be_read(columns: str) -> None:
    with pytest.raises(BindError, match="is not a list of columns"):
        define_outside("c", columns, {"connector": "files", "path": "/c"})


def test_watersmeet_explain_knows_tables(tmp_path: Path) -> None:
    script = f"{STREAMS}{TABLE});{QUERY}"
    (plan,) = explain_script(script, tmp_path)
    assert "join_1: left lookup, at once and never revised, by key hash" in plan
    refused: tuple[tuple[str, type[WatersmeetError], str], ...] = (
        (f"{TABLE}, lookup_cache_row = 1)", ConfigError, r"no option 'lookup_cache_row' \(line 1, column 2\d\d\)"),
        (f"{TABLE}); DROP STREAM customers", CatalogError, "there is no stream customers"),
        (f"{TABLE}); DROP TABLE customers; {STREAMS}{QUERY}", CatalogError, "there is no stream customers"),
        (
            f"{STREAMS}{TABLE}); INSERT INTO customers SELECT id, s, s, s FROM o",
            UnsupportedError,
            "queries can only look rows up in it",
        ),
    )
    for text, kind, message in refused:
        with pytest.raises(kind, match=message):
            list(explain_script(text, tmp_path))
