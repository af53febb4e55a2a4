"""Cells on Spark: each statement's result below the cell, bounded and running queries, errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from pyspark.sql import SparkSession

import watersmeet
from watersmeet.session.session import Session

pytestmark = pytest.mark.spark
JOIN = "SELECT a.id, count(*) AS n FROM a JOIN b ON a.id = b.id WITHIN INTERVAL '5' SECONDS GROUP BY a.id"
PAIRS = "SELECT a.id, b.ts FROM a JOIN b ON a.id = b.id WITHIN INTERVAL '5' SECONDS"

#: Runs a cell: the outputs below it as HTML, those that were replaced too, and what it prints; whether it succeeded.
RunCell: TypeAlias = Callable[[str], tuple[list[str], str, bool]]


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    InteractiveShell.clear_instance()
    found = InteractiveShell.instance()
    found.run_line_magic("load_ext", "watersmeet.notebook")
    yield found
    InteractiveShell.clear_instance()


@pytest.fixture
def run(shell: InteractiveShell, spark: SparkSession, tmp_path: Path) -> Iterator[RunCell]:
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    shell.user_ns["session"] = session

    def run(cell: str) -> tuple[list[str], str, bool]:
        with capture_output() as found:
            result = shell.run_cell(cell)
        html = [output.data.get("text/html", "") for output in found.outputs]
        return html, re.sub(r"\x1b\[[0-9;]*m", "", found.stdout + found.stderr), result.success

    _, printed, succeeded = run("""%%watersmeet
        CREATE STREAM a (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
        CREATE STREAM b (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
        INSERT INTO a VALUES (1, TIMESTAMP'2026-01-01 10:00:00'), (2, TIMESTAMP'2026-01-01 10:00:01');
        INSERT INTO b VALUES (1, TIMESTAMP'2026-01-01 10:00:00'), (1, TIMESTAMP'2026-01-01 10:00:03');
    """)
    assert succeeded, printed
    yield run
    session.stop()


def test_statements_show_their_results_in_order_and_the_last_one_goes_to_a_variable(
    run: RunCell, shell: InteractiveShell
) -> None:
    html, _, succeeded = run(
        f"%%watersmeet --into found\nDESCRIBE a;\nEXPLAIN {JOIN};\nSELECT id FROM table(a) ORDER BY id"
    )
    assert succeeded
    assert ["event time" in html[0], "<svg" in html[1], '<td class="number">2</td>' in html[2]] == [True] * 3
    assert shell.user_ns["found"].to_pandas()["id"].tolist() == [1, 2]


@pytest.mark.slow
def test_a_bounded_select_is_a_table(run: RunCell, shell: InteractiveShell) -> None:
    html, printed, succeeded = run(f"%%watersmeet --bounded --into joined\n{JOIN}")
    assert succeeded, printed
    assert re.findall(r"<td.*?>(.*?)</td>", html[-1]) == ["1", "2"]
    assert any('<svg xmlns="http://www.w3.org/2000/svg" class="bar"' in each for each in html[:-1])
    assert any("tasks of the one batch, a " in each for each in html[:-1])
    assert "% done" not in html[-1]
    assert shell.user_ns["joined"].to_arrow().to_pylist() == [{"id": 1, "n": 2}]
    assert '<rect class="s0"' in shell.user_ns["joined"].chart(x="id", y="n", kind="bar").svg
    assert isinstance(shell.user_ns["session"], Session)
    assert not any(query.is_active for query in shell.user_ns["session"].queries())


@pytest.mark.slow
def test_a_running_select_is_shown_for_a_while_and_stopped(run: RunCell, shell: InteractiveShell) -> None:
    html, printed, succeeded = run(f"%%watersmeet --seconds 1\n{JOIN}")
    assert succeeded, printed
    assert len(html) > 3
    assert '<p class="dim">stopped after 1 s; --seconds says how long</p>' in html[-1]
    assert not any(query.is_active for query in shell.user_ns["session"].queries())


@pytest.mark.slow
def test_other_queries_are_shown_for_a_while_and_go_on(run: RunCell, shell: InteractiveShell) -> None:
    html, printed, succeeded = run(f"%%watersmeet --seconds 1\nCREATE STREAM pairs AS {PAIRS}")
    assert succeeded, printed
    assert '<span class="pill running">running</span>' in html[-2]
    assert "in the background: pairs; STOP QUERY ends one" in html[-1]
    (query,) = shell.user_ns["session"].queries()
    assert query.is_active


def test_bounded_queries_end_before_the_next_statement(run: RunCell) -> None:
    html, printed, succeeded = run(
        f"%%watersmeet --bounded\nCREATE STREAM pairs AS {PAIRS};\nSELECT id, count(*) FROM table(pairs) GROUP BY id"
    )
    assert succeeded, printed
    assert '<span class="pill ended">ended</span>' in html[-2]
    assert "100% done: a " in html[-2]
    assert re.findall(r"<td.*?>(.*?)</td>", html[-1]) == ["1", "2"]


def test_errors_mark_their_position_and_show_no_trace(run: RunCell) -> None:
    html, printed, succeeded = run("%%watersmeet\nSHOW STREAMS;\nSELECT a.idd\nFROM a")
    assert not succeeded
    assert len(html) == 1
    assert printed.strip().splitlines()[:3] == [
        "a has no column idd (line 2, column 8)",
        "2 | SELECT a.idd",
        "  |        ^",
    ]
    assert ".py" not in printed


@pytest.mark.slow
def test_a_query_that_fails_while_it_runs_is_text_too(run: RunCell) -> None:
    _, printed, succeeded = run("%%watersmeet --bounded\nSELECT a.id, raise_error('so it is') AS e FROM a")
    assert not succeeded
    assert "so it is" in printed
    assert "Traceback" not in printed
    assert ".py" not in printed


def test_an_empty_cell_is_refused(run: RunCell) -> None:
    _, printed, succeeded = run("%%watersmeet\n-- nothing")
    assert (succeeded, printed.strip()) == (False, "the cell contains no statement")
