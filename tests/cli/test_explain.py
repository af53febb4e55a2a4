from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from watersmeet.bind.define import define_stream
from watersmeet.catalog.catalog import Catalog
from watersmeet.cli.explain import explain_script
from watersmeet.cli.main import app
from watersmeet.errors import CatalogError, WatersmeetError
from watersmeet.sql.parse import parse
from watersmeet.sql.query_names import select_name
from watersmeet.sql.statements import CreateStream

RUNNER = CliRunner()
STREAMS = """
CREATE STREAM o (id INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM p (id INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
"""
JOIN = "SELECT o.id, o.ts, p.ts AS paid FROM o LEFT JOIN p ON o.id = p.id WITHIN INTERVAL '10' SECONDS"


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_explaining_a_script_leaves_no_files() -> None:
    Path("job.sql").write_text(f"{STREAMS}{JOIN};")
    result = RUNNER.invoke(app, ["explain", "job.sql"])
    assert result.exit_code == 0, result.stderr
    assert "window -10 s <= p.ts - o.ts <= 10 s" in result.stdout
    assert not Path(".watersmeet").exists()


def test_statements_on_the_command_line() -> None:
    sink = "CREATE STREAM s WITH (connector = 'print');"
    result = RUNNER.invoke(
        app, ["explain", "-e", f"{STREAMS}{sink} INSERT INTO s {JOIN}; EXPLAIN {JOIN} EMIT CHANGELOG"]
    )
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("window -10 s") == 2
    assert "EMIT CHANGELOG" in result.stdout


def leave_counters(name: str, text: str) -> None:
    """Write the counters of a query's last run to its checkpoint in the workspace w."""
    folder = Path("w", "queries", name)
    folder.mkdir(parents=True)
    (folder / "counters.json").write_text(text)


def counters(rows: int) -> str:
    return json.dumps({"join_1.state_rows": rows, "join_1.state_bytes": 4096, "join_1.segments": 2, "join_1.late.o": 7})


def statistics(plan: str) -> list[str]:
    return [line.strip() for line in plan.splitlines() if "statistics" in line]


def test_statistics_of_the_last_run() -> None:
    sink = "CREATE STREAM S WITH (connector = 'print');"
    leave_counters(select_name(JOIN), counters(1))
    leave_counters("into_S_from_o_p", counters(22_000))
    leave_counters("into_S_from_o_p_2", counters(3))
    leave_counters("d", counters(4))
    other = JOIN.replace("10", "11")
    queries = [
        *(JOIN, f"EXPLAIN  {JOIN}", f"EXPLAIN INSERT INTO s {other}", f"EXPLAIN CREATE STREAM d AS {JOIN}"),
        *(f"INSERT INTO s {JOIN}", f"INSERT INTO s {other}", f"INSERT INTO s {JOIN}", f"CREATE STREAM d AS {JOIN}"),
        other,
    ]
    found = [statistics(plan) for plan in explain_script(f"{STREAMS}{sink}{';'.join(queries)}", Path("w"))]
    held = [line[0].split()[5] if line else None for line in found]
    assert held == ["1", "1", "22,000", "4", "22,000", "3", "22,000", "4", None]
    assert found[0] == ["statistics of its last batch: 1 rows held, 4,096 bytes in 2 segments"]


@pytest.mark.parametrize("text", ["", "{", "[1]", "7", '{"join_1.state_rows": null}', '{"join_1.state_rows": 1e999}'])
def test_damaged_counters_are_ignored(text: str) -> None:
    leave_counters(select_name(JOIN), text)
    (plan,) = explain_script(f"{STREAMS}{JOIN}", Path("w"))
    assert statistics(plan) == []
    assert "window -10 s <= p.ts - o.ts <= 10 s" in plan


def test_queries_over_stored_rows() -> None:
    sink = "CREATE STREAM s WITH (connector = 'print');"
    asked = "SELECT count() FROM table(o) JOIN table(j) USING (id)"
    script = f"{STREAMS}{sink}CREATE STREAM j AS {JOIN}; {asked}; EXPLAIN {asked}; INSERT INTO s {asked}"
    _, first, second, third = explain_script(script, Path("w"))
    assert first == second
    assert first.splitlines()[1] == "table o (embedded), for Spark the view watersmeet_o…"
    assert "writes its rows to s (print), once" in third.splitlines()
    with pytest.raises(CatalogError, match=r"there is no stream oo \(line 1, column 15\)"):
        list(explain_script("SELECT * FROM table(oo)", Path("w")))


def test_a_query_over_a_stream_that_the_script_derives() -> None:
    plans = list(
        explain_script(f"{STREAMS}CREATE STREAM j AS {JOIN}; SELECT j.id FROM j JOIN o ON j.id = o.id;", Path("w"))
    )
    assert len(plans) == 2
    assert "source j (j, embedded)" in plans[1]


def test_an_error_points_into_the_script() -> None:
    result = RUNNER.invoke(app, ["explain", "-e", f"{STREAMS}SELECT o.idd FROM o"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "line 4, column 8" in result.stderr
    assert "id" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "explain takes either a file or -e 'SQL'"),
        (["job.sql", "-e", "SELECT 1"], 2, "explain takes either a file or -e 'SQL'"),
        (["-e", "SHOW STREAMS"], 1, "there is no query here"),
    ],
)
def test_what_cannot_be_explained(arguments: list[str], code: int, message: str) -> None:
    result = RUNNER.invoke(app, ["explain", *arguments])
    assert (result.exit_code, result.stderr.splitlines()[0]) == (code, message)


def columns(text: str, workspace: str = "w") -> list[str]:
    """Return the last line of each plan."""
    return [plan.splitlines()[-1] for plan in explain_script(f"{STREAMS}{text}", Path(workspace))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A job that runs again creates its streams again.
        ("CREATE STREAM o (id INT, ts BIGINT, WATERMARK FOR ts AS ts)  WITH (event_time_unit = 's')", ["id", "ts"]),
        ("CREATE STREAM IF NOT EXISTS o (other STRING)", ["id", "ts"]),
        ("DROP STREAM O; CREATE STREAM o (other STRING)", ["other"]),
        ("DROP STREAM IF EXISTS nowhere", ["id", "ts"]),
        ("SHOW STREAMS; INSERT INTO o VALUES (1, 2); DESCRIBE o; SHOW CREATE STREAM o; STOP QUERY q", ["id", "ts"]),
    ],
)
def test_queries_see_the_effects_of_earlier_statements(text: str, expected: list[str]) -> None:
    assert columns(f"{text}; SELECT * FROM o") == [f"columns: {', '.join(expected)}"]


def test_queries_see_the_streams_of_the_workspace() -> None:
    (statement,) = parse("CREATE STREAM kept (id INT)")
    assert isinstance(statement, CreateStream)
    Catalog(Path("w")).add(define_stream(statement))
    assert columns("CREATE STREAM kept (id INT); SELECT id FROM kept") == ["columns: id"]
    assert columns("CREATE STREAM IF NOT EXISTS kept (k INT); SELECT id FROM kept") == ["columns: id"]
    with pytest.raises(CatalogError, match="there is a stream kept already"):
        columns("CREATE STREAM kept (id STRING); SELECT id FROM kept")
    columns("DROP STREAM kept")
    assert Catalog(Path("w")).get("kept") is not None


def test_chains_of_derived_streams() -> None:
    chain = f"""CREATE STREAM j AS {JOIN};
        CREATE STREAM k WITH (connector = 'files', path = 'k', format = 'json')
          AS SELECT j.id, j.ts FROM j JOIN p ON j.id = p.id WITHIN INTERVAL '1' HOUR;
        CREATE STREAM IF NOT EXISTS k AS SELECT ts FROM o;
        SELECT k.id AS last FROM k JOIN o ON o.id = k.id WITHIN INTERVAL '1' HOUR"""
    assert columns(chain) == ["columns: id, ts, paid", "columns: id, ts", "columns: last"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE STREAM o (id STRING)", r"there is a stream o already \(line 4, column 1\)"),
        ("DROP STREAM o; SELECT * FROM o", "there is no stream o"),
        ("DROP STREAM nowhere", r"there is no stream nowhere \(line 4, column 1\)"),
        ("INSERT INTO nowhere SELECT id FROM o", "there is no stream nowhere"),
        ("INSERT INTO nowhere VALUES (1)", "there is no stream nowhere"),
        ("DESCRIBE nowhere", "there is no stream nowhere"),
        ("INSERT INTO p SELECT id FROM o", "the query returns 1 columns, p takes 2"),
        (
            "INSERT INTO p SELECT array(ts), ts FROM o",
            r"p\.id is \w+, and cannot take ARRAY\(o.ts\), which is ARRAY<\w+> \(line 4, column 22\)",
        ),
        ("EXPLAIN CREATE STREAM d AS SELECT id FROM o; SELECT * FROM d", "there is no stream d"),
        ("CREATE STREAM d AS SELECT id FROM o; CREATE STREAM d AS SELECT ts FROM o", "with another definition"),
        ("CREATE STREAM d AS SELECT id FROM o; INSERT INTO d SELECT id FROM o", "d is fed by its own query"),
        ("CREATE STREAM d (i INT) AS SELECT id FROM o", "takes its columns and event time from its query"),
        ("CREATE STREAM d AS SELECT spark_alone(id) FROM o", "the columns of d cannot be derived without Spark"),
        ("CREATE STREAM f (i INT) WITH (connector = 'filez')", r"no connector 'filez' \(line 4, column 31\)"),
        (
            f"{JOIN} SETTINGS late_rows = 'p'",
            r"late_rows = 'p': that stream cannot store such rows \(line 4, ",
        ),
        ("INSERT INTO o SELECT id, ts FROM p SETTINGS late_rows = '7'", "7 is not a valid stream name"),
        (
            "SELECT id FROM o SETTINGS mode = 'real_time'",
            r"o \(embedded\) cannot be followed in real time: only streams of kafka can \(line 4, column 27\)",
        ),
        (
            "SELECT id FROM o SETTINGS mode = 'real_time', trigger = '1 second'",
            r"trigger is the time between micro-batches, and real time has none \(line 4, column 47\)",
        ),
        ("SELECT id FROM o SETTINGS max_hot_keys = 9", r"max_hot_keys bounds what hybrid .* \(line 4, column 27\)"),
        ("CREATE TABLE t (i INT)", "the table t needs columns and a connector"),
    ],
)
def test_what_a_run_would_refuse(text: str, message: str) -> None:
    with pytest.raises(WatersmeetError) as refused:
        columns(text)
    assert re.search(message, str(refused.value)), refused.value


def test_plans_before_an_error_are_printed() -> None:
    result = RUNNER.invoke(app, ["explain", "-e", f"{STREAMS}{JOIN}; SELECT nothing FROM o"])
    assert result.exit_code == 1
    assert "columns: id, ts, paid" in result.stdout
    assert "nothing" in result.stderr


def test_a_missing_workspace_is_named() -> None:
    result = RUNNER.invoke(app, ["explain", "-w", "nowhere", "-e", "SELECT * FROM o"])
    assert result.exit_code == 1
    assert result.stderr.splitlines()[1].startswith("hint: there is no workspace nowhere")
    assert not Path("nowhere").exists()


def test_a_workspace_that_is_a_file() -> None:
    Path("w").touch()
    result = RUNNER.invoke(app, ["explain", "-w", "w", "-e", "SELECT * FROM o"])
    assert (result.exit_code, result.stderr.splitlines()[0]) == (1, "the workspace w is a file, or stands below one")
