"""Every query of Nexmark, in the harness, against DuckDB over all rows."""

from __future__ import annotations

from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pytest

from benchmarks.nexmark import queries
from benchmarks.nexmark.events import Events
from benchmarks.nexmark.generator import write_files
from benchmarks.nexmark.references import REFERENCES, difference, over
from tests.support.nexmark import wrong_rows
from watersmeet.testing.harness import Harness

#: In the second, a group of 1,000 events lasts as long as the watermark waits.  In the third, days go by.
VARIANTS = {
    "ordered": Events(3_000, rate=20),
    "disordered": Events(3_000, disordered=True, rate=260),
    "slow": Events(3_000, seed=8, rate=0.05),
}


@pytest.mark.sample(12)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", queries.NAMES)
def test_results_are_those_of_the_whole_tables(name: str, variant: str, tmp_path: Path) -> None:
    random = Random(f"{name} {variant}")
    step_bytes = random.choice([None, 30_000])

    def open_rig(*script: object) -> Harness:
        return Harness(*script, buckets=random.randint(1, 3), max_step_bytes=step_bytes)  # type: ignore[arg-type]

    found = wrong_rows(name, VARIANTS[variant], tmp_path, open_rig, random=random, steps=6, restarts=True)
    assert found is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", queries.NAMES)
def test_more_events(name: str, seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    events = Events(10_000, seed=seed, disordered=seed > 0, rate=260)
    assert wrong_rows(name, events, tmp_path, Harness, random=random, steps=12, restarts=seed > 1) is None


def test_each_query_has_a_reference_and_says_what_it_asks() -> None:
    assert list(REFERENCES) == list(queries.NAMES) == [f"q{number}" for number in range(24)]
    assert all(queries.comment(name).endswith(".") for name in queries.NAMES)


@pytest.fixture
def answers(tmp_path: Path) -> duckdb.DuckDBPyConnection:
    return over(write_files(tmp_path, Events(2_000, rate=20), 1))


@pytest.mark.parametrize("name", queries.NAMES)
def test_each_answer_has_rows_and_is_the_one_compared_with(name: str, answers: duckdb.DuckDBPyConnection) -> None:
    rows = answers.sql(REFERENCES[name].rows).to_arrow_table()
    assert len(rows) > 0
    assert difference(answers, name, rows, rows.column_names) is None
    assert difference(answers, name, rows.slice(1), rows.column_names) is not None
    assert difference(answers, name, pa.concat_tables([rows, rows.slice(0, 1)]), rows.column_names) is not None


def test_of_rows_that_tie_any_is_right_but_no_other(answers: duckdb.DuckDBPyConnection) -> None:
    rows = answers.sql(REFERENCES["q18"].rows).to_arrow_table()
    columns = rows.column_names
    other = rows.set_column(columns.index("price"), "price", pa.array([1] * len(rows)))
    assert "unknown" in str(difference(answers, "q18", other, columns))


def test_a_changelog_is_summed(answers: duckdb.DuckDBPyConnection) -> None:
    rows = answers.sql(REFERENCES["q17"].rows).to_arrow_table()
    first = rows.slice(0, 1)
    came = rows.append_column("_tp_delta", pa.array([1] * len(rows)))
    gone = first.append_column("_tp_delta", pa.array([-1]))
    again = first.append_column("_tp_delta", pa.array([1]))
    assert difference(answers, "q17", pa.concat_tables([came, gone, again]), rows.column_names) is None
    assert "missing" in str(difference(answers, "q17", pa.concat_tables([came, gone]), rows.column_names))
    twice = difference(answers, "q17", pa.concat_tables([came, gone, gone]), rows.column_names)
    assert twice == "1 rows were taken back more often than they came"
