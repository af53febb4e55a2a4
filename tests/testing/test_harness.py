"""The harness: counters, columns and errors."""

from __future__ import annotations

import pytest

from watersmeet.errors import BindError, CatalogError
from watersmeet.testing.harness import Harness, StepInput, load_script

SCRIPT = """
CREATE STREAM a (k INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM b (k INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
SELECT a.k, b.ts FROM a JOIN b ON a.k = b.k WITHIN INTERVAL '10' SECONDS;
"""


def test_counters_of_buckets_are_summed_and_their_frontiers_are_not() -> None:
    harness = Harness(*load_script(SCRIPT), buckets=3)
    rows = [(k, 20 + k) for k in range(9)]
    outcome = harness.step({"a": StepInput(rows), "b": StepInput(rows)})
    assert outcome.counters["join_1.in.a"] == 9
    assert outcome.counters["join_1.state_rows"] == 18
    assert outcome.counters["join_1.frontier"] == 28_000_000


def test_settings_decide_the_number_of_buckets() -> None:
    script = SCRIPT.replace("SECONDS;", "SECONDS SETTINGS buckets = 5;")
    rows = [(k, 20) for k in range(50)]
    for text, buckets in ((SCRIPT, 2), (script, 5)):
        harness = Harness(*load_script(text))
        assert harness.step({"a": StepInput(rows), "b": StepInput(rows)}).count("state_rows") == 100
        assert {bucket for _, bucket in harness._stores} == set(range(buckets))


def test_a_stream_of_the_alias_frontier_is_counted_too() -> None:
    harness = Harness(*load_script(SCRIPT.replace("FROM a", "FROM a AS frontier").replace("a.k", "frontier.k")))
    outcome = harness.step({"a": StepInput([(k, 20) for k in range(9)])})
    assert outcome.count("used", ("frontier",)) == 9


def test_columns_and_inputs_of_a_query() -> None:
    harness = Harness(*load_script(SCRIPT.replace("FROM a", "FROM a AS x").replace("a.k", "x.k")))
    assert (harness.column_names, harness.column_types) == (["k", "ts"], ["INT", "BIGINT"])
    assert not harness.is_ordered
    assert (harness.inputs_of("A"), harness.inputs_of("x")) == (("x",), ())


def test_an_unknown_stream() -> None:
    with pytest.raises(CatalogError, match="there is no stream c"):
        Harness(*load_script(SCRIPT)).step({"c": StepInput([(1, 1)])})


def test_expressions_are_checked_before_the_first_row() -> None:
    with pytest.raises(BindError, match="the SELECT list cannot be evaluated"):
        Harness(*load_script(SCRIPT.replace("SELECT a.k", "SELECT frob(a.k) AS x")))
    with pytest.raises(BindError, match="an expression over a cannot be evaluated"):
        Harness(*load_script(SCRIPT.replace("a.k = b.k", "a.k = b.k AND frob(a.k) > 1")))
