"""``watersmeet bench nexmark``: its table and errors; no engine runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from benchmarks.nexmark import flink_queries, spark_queries, suite
from benchmarks.nexmark.events import Events
from benchmarks.nexmark.generator import write_files
from benchmarks.nexmark.queries import NAMES
from benchmarks.nexmark.references import REFERENCES, over
from benchmarks.suite import Flink
from watersmeet.cli.main import app


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Sequence[str]]:
    """Replace the engines; those that write are right."""
    found: list[Sequence[str]] = []

    def output(command: Sequence[str], engine: str, name: str) -> str:
        found.append(command)
        of_flink = command[1].endswith("flink.py")
        _, _, what, folder, *rest = command if of_flink else command[2:]
        if what == "measure":
            batches = [900, 900, 900, *[100] * 16, 900]
            state = {"state_rows": 7, "state_bytes": 2_000_000}
            return json.dumps({"q7": 1_000_000.0, "q9": 1_000_000.0} if of_flink else {"batch_ms": batches, **state})
        names = json.loads(Path(rest[0]).read_text()) if of_flink else rest[1:]
        out = Path(rest[1] if of_flink else rest[0])
        with over(Path(folder.removesuffix("-flink").removesuffix("-ended"))) as con:
            for each in names:
                rows = con.sql(REFERENCES[each].rows).to_arrow_table()
                rows = rows.append_column("_batch", pa.array([1] * len(rows)))
                if of_flink and each in flink_queries.UPDATED:  # each row replaces another
                    zeros = [pa.array([0] * len(rows))] * 2
                    place, batch = rows.column_names.index("price"), len(rows.column_names) - 1
                    older = rows.set_column(place, "price", zeros[0]).set_column(batch, "_batch", zeros[1])
                    rows = pa.concat_tables([rows, older])
                path = out / f"{each}.parquet" if of_flink else out / each / "0.parquet"
                path.parent.mkdir(exist_ok=True)
                pq.write_table(rows, path)
        return "log\n{}"

    monkeypatch.setattr(suite, "output_of", output)
    monkeypatch.setattr(suite, "_jars", lambda: ["a.jar"])
    monkeypatch.setattr(suite, "streams_folder", lambda: tmp_path)
    monkeypatch.setattr(suite, "CHECKED", Events(1_000, rate=20))
    monkeypatch.setattr(suite, "flink_of", Flink)
    return found


def test_the_table(commands: list[Sequence[str]], tmp_path: Path) -> None:
    arguments = ["bench", "nexmark", "q7", "q9", "--events", "20010", "--flink", "python"]
    result = CliRunner().invoke(app, [*arguments, "--json", str(tmp_path / "all.json")])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[2:] == [
        "| q7 | watersmeet | 10,000 | 5,000 | 0.01 | 100 ms | 7 | 2.0 MB |",
        "| q7 | flink | 1,000,000 | 500,000 | 1.00 |  |  |  |",
        "| q7 | spark | 10,000 | 5,000 | 0.01 | 100 ms | 7 | 2.0 MB |",
        "| q9 | watersmeet | 10,000 | 5,000 | 0.01 | 100 ms | 7 | 2.0 MB |",
        "| q9 | flink | 1,000,000 | 500,000 | 1.00 |  |  |  |",
        "| q9 | spark | cannot run it: a rank over a stream is not supported | | | | | |",
    ]
    assert [each["events"] for each in json.loads((tmp_path / "all.json").read_text())] == [20_000, 20_000]
    assert [command[3] for command in commands if command[1] == "-m"][:2] == ["watersmeet", "spark"]


def test_wrong_results_have_no_figures(commands: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "difference", lambda con, name, found, columns: "3 rows are missing")
    result = CliRunner().invoke(app, ["bench", "nexmark", "q2", "--engines", "watersmeet"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no figures of watersmeet: q2: 3 rows are missing" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nexmark", "q77"], "nexmark has no query q77\nhint: did you mean q7 or q17?"),
        (["nexmark", "--engines", "spork"], "nexmark has no engine spork\nhint: did you mean spark?"),
        (["nexmark", "--engines", "flink"], "the engine flink and --flink must be used together"),
        (["nexmark", "--events", "19"], "nexmark needs at least 20 events, not 19"),
        (["nexmark", "--batches", "5"], "nexmark needs at least 6 batches, not 5"),
        (["nexmark", "--rows", "9"], "nexmark has no option --rows"),
        (["nexmark", "--rate", "9"], "--rate is an option of latency alone"),
        (["inner", "--batches", "9"], "--batches is an option of nexmark alone"),
        (["inner", "--events", "9"], "--events is an option of nexmark alone"),
        (["inner", "--engines", "spark"], "--engines is an option of nexmark alone"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_every_query_runs_in_each_peer_or_it_is_said_why_not() -> None:
    for name in NAMES:
        for peer in (flink_queries, spark_queries):
            assert name in peer.REFUSED or "SELECT" in peer.text(name)
    assert not set(spark_queries.UPDATED) & set(spark_queries.REFUSED)


def test_flink_reads_the_same_rows(tmp_path: Path) -> None:
    folder = write_files(tmp_path, Events(2_000), 4)
    found = suite._for_flink(folder)
    for stream in ("person", "auction", "bid"):
        ours, theirs = (pq.read_table(each / stream).sort_by("extra") for each in (folder, found))
        assert ours.column("extra") == theirs.column("extra")
        assert len(list((found / stream).iterdir())) == 2
