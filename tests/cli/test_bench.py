"""``watersmeet bench``: its workloads, figures and errors."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import (
    bench_changed_rows,
    bench_embedded_start,
    bench_kernels,
    bench_settings,
    flink_kafka,
    flink_many,
    suite,
)
from benchmarks.engines import definitions
from benchmarks.figures import p95
from benchmarks.latency import suite as latency_suite
from benchmarks.series import Series
from benchmarks.topics import Kafka, NoJarsError
from benchmarks.workloads import WORKLOADS
from tests.support.kafka_broker import Broker
from watersmeet.cli.main import app

FIGURES: dict[str, Any] = {
    "seconds": 9.0,
    "jvm_bytes": 5_000_000,
    "worker_bytes": 7_000_000,
    "state_bytes": 1_000_000,
    "loaded_bytes": 2_000_000,
    "hit_rate": 0.9,
    "rows_out": 3,
    "sums": {"rows": 3},
}


NO_SCRIPT = (
    "--flink and --flink-script must be used together\n"
    "hint: workloads over Kafka and of many streams need --flink alone\n"
)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, dict[str, Any]]:
    """Replace the measurements of each engine; nothing runs."""
    steady = [100] * 17
    found = {
        "watersmeet": {**FIGURES, "batch_ms": [900, 900, 900, *steady[:-1], 900]},
        "spark": {**FIGURES, "batch_ms": [900, 900, 900, *[1600] * 16, 900]},
        "spark_defaults": {**FIGURES, "batch_ms": [900, 900, 900, *[800] * 16, 900]},
    }
    monkeypatch.setattr(suite, "_child", lambda engine, workload, data, settings: dict(found[engine]))
    monkeypatch.setattr(suite, "write_streams", lambda below, data: tmp_path)
    monkeypatch.setattr(suite, "batch_answer", lambda workload, data: {"rows": 3})
    return found


def test_the_targets_of_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is shown as met or missed; the command fails if one is missed."""
    join = {"engines": {"watersmeet": {"rows_per_s": 50_001, "worker_bytes": 500_000_000}}}
    monkeypatch.setattr(suite, "run", lambda *given, **options: join)
    monkeypatch.setattr(latency_suite, "run", lambda *given: [{"latency_ms": {"pairs": {"mean": 99.0, "p95": 199.6}}}])
    monkeypatch.setattr(suite, "output_of", lambda *given: 'log\n{"joins": 10, "right": 10, "rows_per_s": 7000}\n')
    result = CliRunner().invoke(app, ["bench", "seeds"])
    rows = [line.split(" | ") for line in result.stdout.splitlines()[2:]]
    assert [(row[-2], row[-1].strip(" |*")) for row in rows] == [
        ("50,001", "met"),
        ("500 MB", "missed"),
        ("the same", "met"),
        ("99 ms", "met"),
        ("200 ms", "met"),
        ("10 exact, 7,000 records a second over all", "met"),
    ]
    assert result.exit_code == 1
    assert "1 targets were missed" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["seeds", "inner"], "seeds is measured by itself"),
        (["seeds", "--rows", "5"], "seeds has no option --rows"),
        (["seeds", "--alone"], "seeds has no option --alone"),
    ],
)
def test_the_targets_have_no_options(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr


def test_all_workloads_are_listed() -> None:
    result = CliRunner().invoke(app, ["bench"])
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == [*WORKLOADS, "latency", "nexmark", "seeds"]


def test_figures_of_one_workload(measured: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "inner", "--json", str(tmp_path / "all.json")])
    assert result.exit_code == 0, result.output
    title, _, _, _, ours, spark, defaults, *_ = result.stdout.splitlines()
    assert title == "### inner: inner, ±5 s, 2 × 8,000,000 rows"
    assert ours == "| watersmeet | 8,000,000 |  | 100 ms | 100 ms | 9.0 s | 7 MB | 5 MB | 1 MB | 3 |"
    assert spark.startswith("| spark | 500,000 | 16.0 | 1,600 ms |")
    assert defaults.startswith("| spark_defaults | 1,000,000 | 8.0 | 800 ms |")
    assert "working sets: 90% of the state was cached when a step began, 2 MB loaded" in result.stdout
    assert '"rows_per_s": 8000000' in (tmp_path / "all.json").read_text()


def test_wrong_results_have_no_figures(measured: dict[str, dict[str, Any]]) -> None:
    measured["spark"]["sums"] = {"rows": 2}
    result = CliRunner().invoke(app, ["bench", "inner"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "the results of spark differ from DuckDB's: {'rows': 2}, expected {'rows': 3}" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["innr"], "there is no workload innr\nhint: did you mean inner?\n"),
        (["kafka_json", "inner", "--flink", "python"], NO_SCRIPT),
        (["kafka_json", "--flink-script", "script"], NO_SCRIPT),
        (["--all", "inner", "left"], "--all takes no names\nhint: leave out --all to run inner left alone\n"),
        (["--rows", "3"], "no workload is named\nhint: name workloads, or use --all\n"),
        (["left", "inner", "--rows", "3"], "left has 20 batches, so it needs at least 20 rows per side, not 3\n"),
        (
            ["inner", "--json", "nowhere/all.json"],
            "--json: nowhere/all.json cannot be written\nhint: name a file in an existing folder\n",
        ),
        (
            ["inner", "--json", f"{__file__}/all.json"],
            f"--json: {__file__}/all.json cannot be written\nhint: name a file in an existing folder\n",
        ),
        (["inner", "--json", "."], "--json: . cannot be written\nhint: name a file in an existing folder\n"),
        (["inner", "--flink", "python", "--flink-script", "nowhere"], "--flink-script: there is no file nowhere\n"),
        (
            ["inner", "--flink", "/bin/false", "--flink-script", __file__],
            "--flink: /bin/false is not a Python interpreter with apache-flink\n",
        ),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, measured: dict[str, dict[str, Any]]) -> None:
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", message)


def test_rows_are_rounded_down_to_whole_batches() -> None:
    assert WORKLOADS["inner"].of_rows(59).data.rows == 40


def test_figures_of_earlier_workloads_survive_a_failure_or_stop(
    measured: dict[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(workload: Any, data: Any) -> Any:
        if workload.name == "left":
            raise KeyboardInterrupt
        return {"rows": 3}

    monkeypatch.setattr(suite, "batch_answer", broken)
    result = CliRunner().invoke(app, ["bench", "inner", "left", "--json", str(tmp_path / "all.json")])
    assert result.exit_code == 130
    assert result.stdout.count("###") == 1
    assert result.stderr.endswith("stopped: 1 of 2 workloads measured\n")
    assert [each["workload"] for each in json.loads((tmp_path / "all.json").read_text())] == ["inner"]


def test_progress_is_printed_to_standard_error(measured: dict[str, dict[str, Any]]) -> None:
    result = CliRunner().invoke(app, ["bench", "inner"])
    steps = ["generating its streams", "watersmeet", "spark", "spark_defaults", "batch query in DuckDB"]
    assert result.stderr.splitlines() == [f"… inner: {step}" for step in steps]


@pytest.mark.parametrize(("values", "expected"), [([5], 5), (range(1, 17), 16), (range(1, 21), 19), (range(100), 94)])
def test_p95_uses_the_nearest_rank(values: Sequence[int], expected: int) -> None:
    assert p95(values) == expected


def test_there_are_no_benchmarks_outside_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name, name="benchmarks")

    monkeypatch.setattr("importlib.import_module", missing)
    result = CliRunner().invoke(app, ["bench"])
    assert result.exit_code == 1
    assert "run this command in the folder of the repository" in result.stderr


def test_an_engine_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(suite, "write_streams", lambda below, data: tmp_path)
    monkeypatch.setattr("sys.executable", "/bin/false")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = CliRunner().invoke(app, ["bench", "inner"])
    assert result.exit_code == 1
    *_, last = result.stderr.splitlines()
    assert last.startswith("no figures of inner: watersmeet failed; its output is in ")
    assert [path.name for path in tmp_path.iterdir()] == [Path(last.split()[-1]).name]


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["changelog", "lookup"])
def test_results_of_kernels_are_compared_with_the_batch_query(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = WORKLOADS[name].of_rows(2_000)
    figures = bench_kernels.measure(workload, tmp_path)
    assert figures["workload"] == name
    assert all(isinstance(value, int) and value > 0 for key, value in figures.items() if key != "workload")
    monkeypatch.setattr(bench_kernels, "batch_answer", lambda workload, data: {"rows": 3, "l_id": 1, "r_id": 2})
    with pytest.raises(SystemExit, match="the results differ from DuckDB's"):
        bench_kernels.measure(workload, tmp_path)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", bench_changed_rows.QUERIES)
def test_results_of_small_steps_are_compared_with_the_batch_query(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = bench_changed_rows.measure(name, rows=300, changes=50, steps=3)
    assert all(value > 0 for value in figures.values())
    monkeypatch.setattr(bench_changed_rows.Run, "expected", lambda run: {"rows": 3})
    with pytest.raises(SystemExit, match="the results differ from DuckDB's"):
        bench_changed_rows.measure(name, rows=300, changes=50, steps=1)


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        (bench_kernels, ["inner", "--rows", "0"], "argument --rows: '0' is not a whole number of at least 1"),
        (bench_kernels, ["innr"], "argument NAME: there is no workload innr; there are inner, left, "),
        (bench_kernels, ["kafka_json"], "argument NAME: kafka_json reads Kafka topics: run it with watersmeet bench"),
        (
            bench_kernels,
            ["first_seed", "inner", "--rows", "5"],
            "error: inner has 20 batches, so it needs at least 20 rows",
        ),
        (bench_changed_rows, ["--rows", "9", "0"], "argument --rows: '0' is not a whole number of at least 1"),
        (bench_embedded_start, ["--segments", "x"], "argument --segments: 'x' is not a whole number of at least 1"),
        (bench_settings, ["--rows", "5"], "error: inner has 20 batches, so it needs at least 20 rows per side, not 5"),
        (bench_settings, ["=1"], "argument SETTING=VALUE: '=1' is not SETTING=VALUE"),
        (bench_settings, ["spark.ui.enabled"], "argument SETTING=VALUE: 'spark.ui.enabled' is not SETTING=VALUE"),
    ],
)
def test_scripts_refuse_unknown_arguments(
    script: Any,
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["script", *arguments])
    with pytest.raises(SystemExit):
        script.main()
    assert message in capsys.readouterr().err


@pytest.fixture
def commands(measured: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Replace the broker and Flink as well; the commands that would run."""
    found: list[Sequence[str]] = []

    def child(engine: str, workload: Any, data: Any, more: Sequence[str]) -> dict[str, Any]:
        found.append([engine, *more])
        return dict(measured[engine])

    def output(command: Sequence[str], engine: str, workload: Any) -> str:
        found.append(command[1:])
        return "= 2000000 rows/s"

    monkeypatch.setattr(suite, "_child", child)
    monkeypatch.setattr(suite, "output_of", output)
    monkeypatch.setattr(suite, "jars", lambda workload: (("a.jar", "b.jar"), ("c is not available",)))
    monkeypatch.setattr(suite, "resolve_jars", lambda coordinates: (f"{coordinates[0].split(':')[1]}.jar",))
    monkeypatch.setattr(suite, "kafka_broker", lambda **_: contextlib.nullcontext(Broker("127.0.0.1:1")))
    monkeypatch.setattr(suite, "flink_of", suite.Flink)
    return found


def test_all_engines_read_the_same_topics(commands: list[Sequence[str]], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "kafka_json", "--rows", "150", "--flink", "python"])
    assert result.exit_code == 0, result.output
    kafka = ["--broker=127.0.0.1:1", "--jars=a.jar,b.jar"]
    fill, (script, *flink), *engines = commands
    assert fill == ["-m", "benchmarks.topics", "kafka_json", "150", str(tmp_path), *kafka]
    assert Path(script).samefile(str(flink_kafka.__file__))
    topics = ["kafka_json-l", "kafka_json-r"]
    jars = ["flink-sql-connector-kafka.jar", "flink-sql-avro.jar"]
    assert flink == ["interval", "json", "127.0.0.1:1", *topics, "300", *jars]
    assert engines == [[engine, *kafka] for engine in ("watersmeet", "spark", "spark_defaults")]
    assert "| flink | 2,000,000 |" in result.stdout
    assert "… kafka_json: c is not available\n" in result.stderr


def test_flink_joins_many_streams_without_a_script(commands: list[Sequence[str]]) -> None:
    arguments = ["bench", "multi_unwindowed", "--rows", "150", "--flink", "python"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert Path(commands[0][0]).samefile(str(flink_many.__file__))
    assert commands[0][1:] == ["multi_join", "lrm", "150", *["1000000"] * 3]


def test_the_joins_of_many_streams_that_flink_runs() -> None:
    assert flink_many.query("regular", "lrm") == (
        "INSERT INTO results SELECT l_id, r_id + m_id FROM l JOIN r ON l_key = r_key JOIN m ON l_key = m_key"
    )
    near = "m_ts BETWEEN r_ts - INTERVAL '5' SECOND AND r_ts + INTERVAL '5' SECOND"
    assert flink_many.query("intervals", "lrm").endswith(near)
    assert flink_many.settings("multi_join", Path("/c"))[flink_many.MULTI_JOIN] == "true"


def test_a_small_batch_with_the_rest_of_the_topics_does_not_count(
    commands: list[Sequence[str]], measured: dict[str, dict[str, Any]]
) -> None:
    measured["watersmeet"]["batch_ms"] = [900] * 5 + [100] * 9 + [900, 1]
    result = CliRunner().invoke(app, ["bench", "kafka_changelog", "--alone"])
    assert "| watersmeet | 8,000,000 |  | 100 ms | 100 ms |" in result.stdout


def test_jars_that_are_not_available(commands: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(workload: Any) -> Any:
        raise NoJarsError("c is not available")

    monkeypatch.setattr(suite, "jars", missing)
    result = CliRunner().invoke(app, ["bench", "kafka_json"])
    assert result.exit_code == 1
    assert result.stderr.endswith("no figures of kafka_json: c is not available\n")
    assert not commands


def test_streams_over_topics(tmp_path: Path) -> None:
    kafka = Kafka("127.0.0.1:1", ())
    of_avro, _ = definitions(WORKLOADS["kafka_avro"], tmp_path, kafka)
    assert (
        "topic = 'kafka_avro-l', brokers = '127.0.0.1:1', format = 'avro', max_offsets_per_trigger = '400000'"
        in of_avro
    )
    assert '{"name": "l_ts", "type": {"type": "long", "logicalType": "timestamp-micros"}}' in of_avro
    changing, _ = definitions(WORKLOADS["kafka_changelog"], tmp_path, kafka)
    assert "PRIMARY KEY (l_key)" in changing


def test_flink_reads_event_times_of_both_formats() -> None:
    of_json, of_avro = (flink_kafka.table("l", "t", records, "127.0.0.1:1") for records in ("json", "avro"))
    assert "l_ts TIMESTAMP_LTZ(3) NOT NULL" in of_json
    assert "l_micros BIGINT NOT NULL, l_ts AS TO_TIMESTAMP_LTZ(l_micros / 1000, 3)" in of_avro
    assert all("'scan.bounded.mode' = 'latest-offset'" in each for each in (of_json, of_avro))


@pytest.mark.parametrize(("growth", "verdict"), [(0.0, "constant"), (4.0, "constant"), (6.0, "grows"), (-6.0, "falls")])
def test_a_figure_is_constant_if_an_hour_changes_it_by_a_twentieth_at_most(growth: float, verdict: str) -> None:
    series = Series()
    for minute in range(60):
        warm = {"warm": 1.0} if minute < 15 else {}
        series.add(60.0 * minute, {"size": 100.0 + growth * (minute - 37) / 60 + 1_000 * bool(warm), **warm})
    trend = series.trend("size", 900.0)
    assert trend is not None
    assert trend.per_hour == pytest.approx(growth)
    assert trend.verdict == verdict
    assert series.trend("warm", 900.0) is None
    assert [len(values) for values in series.rows(["size", "warm"], 300.0)] == [2] * 12
    assert next(series.rows(["warm"], 300.0)) == [1.0]
