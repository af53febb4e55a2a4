"""The Spark that suits a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from watersmeet.cli.spark_for import spark_for
from watersmeet.session.streams import Streams
from watersmeet.sql.parse import parse

EMBEDDED = "CREATE STREAM a (k INT);"
FILES = "CREATE STREAM f (k INT) WITH (connector = 'files', path = 'x');"
QUERY = "SELECT * FROM a JOIN a AS b ON a.k = b.k;"
SHORT = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m",
    "spark.sql.codegen.wholeStage": "false",
}


@pytest.mark.parametrize(
    ("script", "bounded", "wanted"),
    [
        (EMBEDDED + QUERY, True, SHORT),
        (EMBEDDED + QUERY, False, None),
        (FILES + QUERY, True, None),
        ("CREATE TABLE t (k INT) WITH (connector = 'jdbc', url = 'x', table = 't');", True, None),
    ],
)
def test_a_bounded_job_over_few_rows_of_the_workspace_compiles_once(
    tmp_path: Path, script: str, bounded: bool, wanted: dict[str, str] | None
) -> None:
    assert spark_for(parse(script), None, tmp_path, bounded=bounded, real_time=False) == (None, wanted)


def test_streams_of_the_workspace_count_too(tmp_path: Path) -> None:
    def found() -> object:
        return spark_for(parse(QUERY), None, tmp_path, bounded=True, real_time=False)[1]

    streams = Streams(None, tmp_path)  # type: ignore[arg-type]
    streams.create(*parse(EMBEDDED))  # type: ignore[arg-type]
    assert found() == SHORT
    with (tmp_path / "streams" / "a" / "000000000000-x.parquet").open("wb") as log:
        log.truncate((16 << 20) + 1)
    assert found() is None
    log_file = tmp_path / "streams" / "a" / "000000000000-x.parquet"
    log_file.unlink()
    streams.create(*parse(FILES))  # type: ignore[arg-type]
    assert found() is None


def test_real_time_has_slots_for_all_tasks(tmp_path: Path) -> None:
    script = parse("SELECT * FROM a JOIN a AS b ON a.k = b.k SETTINGS mode = 'real_time';")
    insert = "INSERT INTO t SELECT 1 FROM s SETTINGS mode = 'real_time'"
    together = parse(f"EXECUTE STATEMENT SET BEGIN {insert}; END;")
    for statements, real_time in ((script, False), (together, False), (parse(QUERY), True)):
        master, config = spark_for(statements, None, tmp_path, bounded=False, real_time=real_time)
        assert master == "local[64]"
        assert config is not None
        assert list(config) == ["spark.sql.shuffle.partitions"]


def test_a_master_that_is_given_stays_as_it_is(tmp_path: Path) -> None:
    assert spark_for(parse(EMBEDDED), "local[2]", tmp_path, bounded=True, real_time=True) == ("local[2]", None)
