"""`watersmeet state` and SELECTs over state(…): what they show of checkpoints that are there."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tests.runtime.inspection.checkpoints import LIVE, MICRO_BATCHES, unpack_micro_batches, write_live
from watersmeet.checksums import read_sealed, sealed
from watersmeet.cli.main import app
from watersmeet.columns import RID, TIME
from watersmeet.errors import CheckpointError, WatersmeetError
from watersmeet.runtime.inspection.database import RELATIONS
from watersmeet.runtime.inspection.selecting import StateRows, select_state
from watersmeet.runtime.inspection.stored_query import StoredQuery, consistently
from watersmeet.runtime.real_time.epochs import file_name
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import SelectState
from watersmeet.state.epoch_store import EpochStore
from watersmeet.state.manifest import Manifest, write_manifest
from watersmeet.state.segments import write_segment

RUNNER = CliRunner()


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace" / "queries"
    folder.mkdir(parents=True)
    unpack_micro_batches(folder)
    write_live(folder)
    return folder


def state(queries: Path, *arguments: str) -> tuple[int, str, str]:
    done = RUNNER.invoke(app, ["state", *arguments, "-w", str(queries.parent)])
    return done.exit_code, done.stdout, done.stderr


def facts(queries: Path, *arguments: str) -> dict[str, list[dict[str, Any]]]:
    code, out, err = state(queries, *arguments, "--format", "json")
    assert (code, err) == (0, "")
    found: dict[str, list[dict[str, Any]]] = json.loads(out)
    return found


def selected(queries: Path, sql: str) -> StateRows:
    (statement,) = parse(sql)
    assert isinstance(statement, SelectState)
    return select_state(statement.query, str(queries))


def test_all_queries_are_listed(queries: Path) -> None:
    micro, live = facts(queries)["queries"]
    assert {**micro, "written": None} == {
        "query": MICRO_BATCHES, "mode": "micro_batch", "batch": 2, "operators": 1, "rows": 147, "bytes": 5064,
        "written": None, "note": "",
    }  # fmt: skip
    assert micro["written"].startswith("20")
    assert (live["query"], live["mode"], live["batch"], live["rows"]) == (LIVE, "real_time", 1, 8)


def test_a_damaged_query_does_not_hide_the_others(queries: Path) -> None:
    (queries / LIVE / "plan.json").write_text("{")
    micro, live = facts(queries)["queries"]
    assert micro["rows"] == 147
    assert "plan.json cannot be read" in live["note"]


def test_an_operator_is_shown_as_its_manifests_have_it(queries: Path) -> None:
    found = facts(queries, MICRO_BATCHES)
    assert found["operators"] == [
        {
            "operator": "join_1", "kind": "IntervalJoin", "buckets": 4, "segments": 8, "rows": 147, "bytes": 5064,
            "oldest": "1970-01-03 11:10:00", "newest": "1970-01-04 11:36:40", "frontier": "1970-01-04 11:03:15",
            "skew": 1.17,
        }
    ]  # fmt: skip
    assert [(each["relation"], each["input"], each["rows"]) for each in found["relations"]] == [
        ("left", "o", 87),
        ("right", "p", 60),
    ]
    assert [(each["input"], each["frontier"]) for each in found["inputs"]] == [
        ("o", "1970-01-04 11:03:15"),
        ("p", "1970-01-04 11:36:35"),
    ]
    counters = {each["counter"]: each["value"] for each in found["counters"]}
    assert (counters["join_1.in.o"], counters["join_1.used.p"]) == (300, 134)


def test_times_that_are_numbers_stay_numbers(queries: Path) -> None:
    (operator,) = facts(queries, LIVE)["operators"]
    assert (operator["oldest"], operator["newest"], operator["frontier"]) == ("50", "60", "40")


def test_times_that_python_cannot_show_are_null(queries: Path) -> None:
    """In all relations alike: those of the years 1 to 9999 are shown."""
    last, newest = 253_402_300_799_999_999, "9999-12-31 23:59:59.999999"
    folder = queries / LIVE
    content = (folder / "plan.json").read_text().replace("'row'", "'timestamp'")
    fields, _ = read_sealed(content.encode())
    (folder / "plan.json").write_bytes(sealed(json.dumps(fields)))
    place = str(folder / "epochs/operators/join_1/0")
    store = EpochStore(place, file_name(1, 0))
    manifest = Manifest("live", step=2, frontier=40)
    table = pa.table({TIME: [0, last, last + 1], RID: [1, 2, 3], "o:id": [0, 0, 0]})
    manifest.segments.append(write_segment(store, 1, "left", table))
    write_manifest(store, manifest)
    store.write(file_name(1, 0))
    shown = selected(queries, "SELECT time::VARCHAR FROM state('live', 'rows') WHERE bucket = 0 ORDER BY t")
    assert list(shown.rows()) == [("1970-01-01 00:00:00",), (newest,), (None,)]
    (left,) = [each for each in facts(queries, LIVE, "--keys", "5")["keys"] if each["key"] == '{"o.id":0}']
    assert left["newest"] == newest.replace(" ", "T")


def test_the_largest_keys_come_first(queries: Path) -> None:
    one, two = facts(queries, LIVE, "--keys", "2")["keys"]
    assert (one["relation"], one["key"], one["rows"]) == ("left", '{"o.id":7}', 2)
    assert (two["relation"], two["key"], two["rows"]) == ("right", '{"p.id":7}', 2)
    assert sum(each["rows"] for each in facts(queries, MICRO_BATCHES, "--keys", "1000")["keys"]) == 147


@pytest.mark.parametrize("key", ["id=7", "ID = 7", "7"])
def test_the_rows_of_a_key_are_shown_on_both_sides(queries: Path, key: str) -> None:
    rows = facts(queries, MICRO_BATCHES, "--key", key)["rows"]
    assert [(row["relation"], row["bucket"], row["time"], row["row"]) for row in rows] == [
        ("left", 3, "1970-01-03 15:36:40", '{"o.id":7}'),
        ("left", 3, "1970-01-04 01:53:20", '{"o.id":7}'),
        ("right", 3, "1970-01-03 16:10:00", '{"p.id":7,"p.status":"ok"}'),
        ("right", 3, "1970-01-04 02:26:40", '{"p.id":7,"p.status":"ok"}'),
    ]


def test_a_key_may_be_that_of_one_side(queries: Path) -> None:
    assert len(facts(queries, MICRO_BATCHES, "--key", "p.id=7")["rows"]) == 2
    assert facts(queries, MICRO_BATCHES, "--key", "p.id=7", "--key", "8")["rows"] == []


def test_a_key_that_is_not_there_has_no_rows(queries: Path) -> None:
    assert state(queries, MICRO_BATCHES, "--key", "id=99")[:2] == (0, "(no rows)\n")


def test_where_no_query_has_run_nothing_is_listed(tmp_path: Path) -> None:
    assert state(tmp_path / "other" / "queries") == (
        0,
        "(no rows)\n",
        f"no query has run in {tmp_path}/other/queries\n",
    )


def test_facts_are_printed_as_csv(queries: Path) -> None:
    _, out, _ = state(queries, MICRO_BATCHES, "--format", "csv")
    assert [(row["relation"], row["rows"]) for row in csv.DictReader(io.StringIO(out))] == [
        ("left", "87"),
        ("right", "60"),
    ]


def test_a_checkpoint_is_named_by_its_folder_or_by_that_of_all(queries: Path, tmp_path: Path) -> None:
    for arguments in (["--checkpoint", str(queries / LIVE)], [LIVE, "--checkpoint", str(queries)]):
        done = RUNNER.invoke(app, ["state", *arguments, "-w", str(tmp_path)])
        assert "join_1" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["liv"], 1, "there is no query liv in "),
        (["liv"], 1, "hint: did you mean live?"),
        ([LIVE, "--key", "name=7"], 1, "no stored key has a column name"),
        ([LIVE, "--key", "=7"], 1, "--key =7 names no column"),
        ([LIVE, "--keys", "0"], 2, "--keys takes a number from 1 on"),
        (["--keys", "3"], 2, "--keys and --key need the name of a query"),
        ([LIVE, "--keys", "3", "--key", "7"], 2, "exclude each other"),
        (["--checkpoint", ""], 2, "--checkpoint names no folder"),
    ],
)
def test_what_cannot_be_shown_is_refused(queries: Path, arguments: list[str], code: int, said: str) -> None:
    found, _, err = state(queries, *arguments)
    assert (found, said in err) == (code, True), err


# -- SELECT ------------------------------------------------------------------------------------------------------------


def test_a_select_groups_and_orders(queries: Path) -> None:
    found = selected(
        queries,
        f"SELECT relation, sum(rows) AS n FROM state('{MICRO_BATCHES}') GROUP BY relation ORDER BY n DESC LIMIT 1",
    )
    assert found.columns == ["relation", "n"]
    assert list(found.rows()) == [("left", 87)]


def test_relations_of_several_queries_join(queries: Path) -> None:
    sql = (
        f"WITH k AS (SELECT \"key\", rows FROM state('{LIVE}', 'keys')) SELECT k.rows, b.bucket FROM k"
        f" JOIN state('{MICRO_BATCHES}', 'buckets') AS b ON b.bucket = 6 WHERE k.key ->> '$.\"o.id\"' = '7'"
    )
    assert list(selected(queries, sql).rows()) == [(2, 6)]


@pytest.mark.parametrize("relation", RELATIONS)
def test_each_relation_has_the_columns_that_the_page_names(queries: Path, relation: str) -> None:
    page = (Path(__file__).parents[3] / "docs/sql/state.md").read_text()
    (line,) = (line for line in page.splitlines() if line.startswith(f"| `{relation}`"))
    columns = selected(queries, f"SELECT * FROM state('{LIVE}', '{relation}')").columns
    assert [f"`{name}`" for name in columns] == [word.strip() for word in line.split("|")[3].split(",")]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM state('live') s, read_text('/etc/hostname') f",
        "SELECT * FROM state('live') s, '/etc/hostname' f",
        "SELECT * FROM state('live') s, glob('/*') f",
        "SELECT * FROM state('live') s, secret_table f",
    ],
)
def test_a_select_reads_nothing_else(queries: Path, sql: str) -> None:
    secret_table = pa.table({"a": [1]})
    with pytest.raises(WatersmeetError, match="cannot be carried out"):
        list(selected(queries, sql).rows())
    del secret_table


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT * FROM state('liv')", r"there is no query liv in .*\(line 1, column 15\)"),
        ("SELECT * FROM state('live', 'row')", r"state has no relation row \(line 1, column 15\)\n.*did you mean rows"),
        ("SELECT * FROM state(live)", "expected a query's name in quotes after state"),
        ("SELECT * FROM state('live'", r"expected '\)' after state"),
        ("SELECT nothing FROM state('live')", '"nothing" not found'),
        ("SELECT segment::INT FROM state('live')", "Conversion Error"),
        ("SELECT TIMESTAMP '20000-01-01 00:00:00' AS x FROM state('live')", "values of column x .*CAST"),
        ("SELECT * FROM state('live') WHERE", "DuckDB cannot read the query"),
        ("EXPLAIN SELECT * FROM state('live')", r"EXPLAIN takes no query over state\(…\)"),
        ("INSERT INTO a SELECT * FROM state('live')", "INSERT INTO takes no query over state"),
        ("CREATE STREAM a AS SELECT * FROM state('live')", "takes no query over state"),
    ],
)
def test_what_cannot_be_selected_is_refused(queries: Path, sql: str, said: str) -> None:
    with pytest.raises(WatersmeetError, match=f"(?s){said}"):
        list(selected(queries, sql).rows())


def test_a_stream_may_be_called_state() -> None:
    (statement,) = parse("SELECT state.id FROM state")
    assert not isinstance(statement, SelectState)


def test_a_script_of_such_selects_needs_no_spark(queries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watersmeet.cli.spark.session_of", None)
    script = f"SELECT count(*) AS n FROM state('{LIVE}');"
    done = RUNNER.invoke(app, ["run", "-", "-w", str(queries.parent)], input=script)
    assert (done.exit_code, "4" in done.stdout) == (0, True)


# -- while a query runs ------------------------------------------------------------------------------------------------


def test_what_vanishes_is_read_again_as_of_the_next_batch(queries: Path) -> None:
    path, seen = queries / MICRO_BATCHES, []

    def work(query: StoredQuery) -> int | None:
        seen.append(query.batch)
        if len(seen) == 1:
            raise CheckpointError("a file is gone")
        return query.batch

    commit = path / "spark/commits/2"
    content = commit.read_bytes()
    commit.unlink()

    def first(query: StoredQuery) -> int | None:
        commit.write_bytes(content)  # the query commits batch 2 while batch 1 is read
        return work(query)

    assert consistently(str(path), first) == 2
    assert seen == [1, 2]


def test_a_query_that_is_always_faster_is_said_to_run(queries: Path) -> None:
    path = queries / LIVE

    def work(query: StoredQuery) -> None:
        assert query.batch is not None
        (path / f"spark/commits/{query.batch + 1}").write_text("v1\n{}")
        for bucket in ("0", "3"):
            folder = str(path / "epochs/operators/join_1" / bucket)
            EpochStore(folder, file_name(query.batch, 0)).write(file_name(query.batch + 1, 0))
        raise CheckpointError("a file is gone")

    with pytest.raises(CheckpointError, match="deletes its files sooner than they can be read"):
        consistently(str(path), work)


def test_what_vanishes_without_a_new_batch_is_an_error(queries: Path) -> None:
    def work(query: StoredQuery) -> None:
        raise CheckpointError("a file is gone")

    with pytest.raises(CheckpointError, match="a file is gone"):
        consistently(str(queries / LIVE), work)
