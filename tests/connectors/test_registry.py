"""What the registry of connectors checks and refuses, and which sinks take a changelog."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from watersmeet.catalog.streams import StreamColumn, StreamDef, StreamMode
from watersmeet.connectors.connector import Connector
from watersmeet.connectors.registry import (
    CONNECTORS,
    check_connector,
    check_sink,
    limits_batches,
    open_sink,
    open_source,
)
from watersmeet.connectors.stream_schema import to_columns
from watersmeet.errors import BindError, ConfigError, ConnectorError, UnsupportedError
from watersmeet.settings.secret_detection import secrets_in
from watersmeet.settings.secrets import hide, resolve

POSTGRES = "jdbc:postgresql://h/d"


def stream(connector: str, columns: str = "", **options: str) -> StreamDef:
    """A stream ``s`` with columns such as ``id INT, d INT``; ``__`` in the name of an option is a point."""
    declared = [StreamColumn(name=each.split()[0], type=each.split()[1]) for each in columns.split(",") if each]
    given = {name.replace("__", "."): value for name, value in options.items()}
    return StreamDef(name="s", columns=tuple(declared), connector=connector, options=given)


def changing(connector: str, **options: str) -> StreamDef:
    """As ``stream``, with a primary key."""
    plain = stream(connector, "id INT", **options)
    return plain.model_copy(update={"mode": StreamMode.VERSIONED, "primary_key": ("id",)})


def with_delta(connector: str, **options: str) -> StreamDef:
    """As ``changing``, with ``_tp_delta`` among the columns."""
    plain = changing(connector, **options)
    return plain.model_copy(update={"columns": (*plain.columns, StreamColumn(name="_tp_delta", type="TINYINT"))})


def refuse(*_: object) -> None:
    raise AssertionError("nothing is shown here")


@pytest.mark.parametrize(
    ("given", "message", "option"),
    [
        (stream("pint"), "there is no connector 'pint'\nhint: did you mean print?", None),
        (stream("print", color="red"), "print has no option 'color': it takes none", "color"),
        (stream("embedded", topic="t"), "a stream without a connector has no option 'topic'", "topic"),
        (stream("files"), "files needs the option path", "path"),
        (stream("files", path="p", csv__header="true"), "hint: write header = 'true'", "csv.header"),
        (
            stream("files", path="p", compression="snappy"),
            "files: compression = 'snappy' does not go with format = 'json'\nhint: write 'none' or 'gzip'",
            "compression",
        ),
        (
            stream("files", path="p", format="csv", compression="GZIP"),
            "compression = 'GZIP' does not go with format = 'csv'\nhint: write 'none' or 'gzip'",
            "compression",
        ),
        (
            stream("files", path="p", format="parquet", compression="lz4"),
            "does not go with format = 'parquet'\nhint: write 'none' or 'snappy' or 'gzip' or 'zstd'",
            "compression",
        ),
        (
            changing("files", path="p", format="debezium-json", compression="gzip"),
            "files: compression is for writing, and format = 'debezium-json' is only read",
            "compression",
        ),
        (
            stream("files", path="p", format="parquet", compression="gzip", parquet__Compression="zstd"),
            "compression and parquet.Compression say the same\nhint: leave out parquet.Compression",
            "parquet.Compression",
        ),
        (stream("kafka", topic="t", brokers="h:1", topics="t"), "kafka has no option 'topics'", "topics"),
        (stream("datagen", rows="3"), "datagen has no option 'rows'", "rows"),
        (stream("files", path="p", format="debezium-json"), "brings changes, but s only appends rows", "format"),
        (changing("files", path="p", format="debezium-json", csv__sep=";"), "csv.sep does not go with", "csv.sep"),
        (changing("print"), "print is a sink, and has no rows that change", None),
        (
            changing("jdbc", url="jdbc:oracle://h/d", table="t"),
            "jdbc writes to postgresql, mysql, mariadb and sqlite, not to oracle",
            "url",
        ),
        (changing("jdbc", url=POSTGRES), "jdbc needs the option table", "table"),
        (changing("jdbc", url=POSTGRES, table="t", password="geheim"), "a secret written out", "password"),
        (changing("jdbc", url="jdbc:postgresql://u:geheim@h/d", table="t"), "url holds a secret", "url"),
        (
            changing("jdbc", url=POSTGRES, table="t", lookup_timeout="1 s"),
            "jdbc has no option 'lookup_t",
            "lookup_timeout",
        ),
        (changing("jdbc", url=POSTGRES, table="t", timeout="0 s"), "timeout", "timeout"),
        (
            stream("jdbc", url=POSTGRES, table="t"),
            "s has no PRIMARY KEY: a batch written again, as after a failure, would double its rows\nhint: CREATE",
            None,
        ),
        (with_delta("jdbc", url=POSTGRES, table="t"), "s: _tp_delta is no column of the table", None),
        (with_delta("delta", path="p"), "s: _tp_delta is no column of the table", None),
        (stream("delta", pat="p"), "did you mean path?", "pat"),
        (
            stream("delta", path="p", starting="latest", starting_timestamp="2026-01-01"),
            "delta: starting and starting_timestamp both say where to begin\nhint: leave one of them out",
            "starting_timestamp",
        ),
        (stream("delta", path="p", starting="first"), "delta: option starting = 'first'", "starting"),
        (stream("delta", path="p", starting_version="-1"), "delta: option starting_version = '-1'", "starting_version"),
        (
            stream("delta", path="p", starting_timestamp="yesterday"),
            "delta: option starting_timestamp = 'yesterday': write a time such as '2026-01-01 00:00:00+00:00'",
            "starting_timestamp",
        ),
        (stream("delta", path="p", max_files_per_trigger="0"), "greater than 0", "max_files_per_trigger"),
        (
            changing("kafka", topic="t", brokers="h:1", key="id"),
            "the PRIMARY KEY of s is the key of its records",
            "key",
        ),
        (
            changing("kafka", topic="t", brokers="h:1", changelog="true"),
            "changelog = 'true' appends each change, but s has a PRIMARY KEY",
            "changelog",
        ),
    ],
)
def test_options_are_checked(given: StreamDef, message: str, option: str | None) -> None:
    with pytest.raises(ConfigError) as raised:
        check_connector(given)
    assert message in str(raised.value)
    assert raised.value.option == option


@pytest.mark.parametrize("name", ["parquet.encryption.key.list", "kafka.sasl.Authorization", "csv.account_key"])
def test_names_of_keys_and_of_authorization_are_secrets(name: str) -> None:
    assert secrets_in(name, "geheim") == ("geheim",)


WRITTEN_OUT = {
    "files": {"path": "s3a://key:geheim@bucket/folder"},
    "kafka": {"topic": "t", "brokers": "u:geheim@h:1"},
    "delta": {"path": "s3://bucket?secret_key=geheim"},
    "jdbc": {"url": "jdbc:postgresql://u:${env:P}geheim@h/d", "table": "t"},
}


@pytest.mark.parametrize("connector", WRITTEN_OUT)
def test_every_connector_refuses_a_secret_in_clear_text(connector: str) -> None:
    given = changing(connector, **WRITTEN_OUT[connector])
    with pytest.raises(ConfigError, match="holds a secret written out") as raised:
        check_connector(given)
    assert raised.value.option in given.options
    assert "geheim" not in str(raised.value)


def test_an_option_that_is_wrong_besides_does_not_print_its_secret() -> None:
    for given in changing("jdbc", url="postgresql://u:geheim@h/d", table="t"), stream("files", password="geheim"):
        with pytest.raises(ConfigError) as raised:
            check_connector(given)
        assert "geheim" not in str(raised.value)


def test_streams_that_a_catalogue_kept_with_a_secret_print_none(spark: SparkSession, tmp_path: Path) -> None:
    files = stream("files", "id INT", path=f"{tmp_path}/none?password=geheim")
    brokers = stream("kafka", "id INT", topic="t", brokers="u:geheim@127.0.0.1:1")
    for given, shown in (files, "there is no folder \\*\\*\\*"), (brokers, "reached at \\*\\*\\*"):
        with pytest.raises(ConnectorError, match=shown) as raised:
            open_source(spark, given, tmp_path, limited=True)
        assert "geheim" not in str(raised.value)
    assert hide("geheim was said") == "*** was said", "what Spark and Kafka say of it later is hidden too"


def test_a_made_up_column_may_have_the_name_of_a_secret() -> None:
    check_connector(stream("datagen", "token STRING,password STRING", columns__token="uuid()", columns__password="'x'"))


@pytest.mark.parametrize("connector", CONNECTORS.values(), ids=CONNECTORS)
def test_the_reference_of_a_connector_names_every_option(connector: Connector) -> None:
    reference = type(connector).__dict__.get("__doc__")
    assert reference, "a connector has a docstring of its own"
    options = set(connector.model.model_fields) - set(connector.prefixes)
    prefixes = {prefix for prefixes in connector.prefixes.values() for prefix in prefixes}
    named = set(re.findall(r"``([\w.*]+)``", reference))
    assert options <= named
    assert all(any(re.fullmatch(rf"{re.escape(prefix)}(\*|NAME)", each) for each in named) for prefix in prefixes)
    if not options | prefixes:
        assert "takes no options" in " ".join(reference.split())


def test_what_reads_only_and_what_writes_only(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"s is a sink \(print\): it cannot be read"):
        open_source(spark, stream("print"), tmp_path, limited=True)
    with pytest.raises(UnsupportedError, match=r"s is a source \(datagen\): nothing can be written to it"):
        open_sink(stream("datagen"), tmp_path, changelog=False, show=refuse)


@pytest.mark.parametrize(
    "sink",
    [
        stream("files", path="p"),
        changing("files", path="p"),
        stream("kafka", topic="t", brokers="h:1"),
        stream("embedded"),
        stream("delta", path="p"),
    ],
)
def test_sinks_that_only_append_refuse_a_changelog(sink: StreamDef) -> None:
    check_sink(sink, changelog=False)
    with pytest.raises(UnsupportedError) as raised:
        check_sink(sink, changelog=True)
    assert str(raised.value) == (
        f"s ({sink.connector}) only appends, but this query emits corrections\n"
        "hint: use a sink that takes a changelog: embedded streams, kafka, jdbc, delta, duckdb with a PRIMARY "
        "KEY; files, kafka WITH (changelog = 'true'); print, blackhole; or EMIT FINAL, where results can be final"
    )


def test_debezium_is_read_and_not_written(tmp_path: Path) -> None:
    sink = changing("files", path=str(tmp_path), format="debezium-json", json__timestampFormat="yyyy")
    check_connector(sink)
    with pytest.raises(UnsupportedError, match="s: format debezium-json is for reading changes"):
        open_sink(sink, tmp_path, changelog=False, show=refuse)


@pytest.mark.parametrize(
    "sink",
    [
        stream("files", path="p", changelog="true"),
        stream("kafka", topic="t", brokers="h:1", changelog="true"),
        stream("print"),
        stream("blackhole"),
        changing("embedded"),
        changing("kafka", topic="t", brokers="h:1"),
        changing("jdbc", url=POSTGRES, table="t"),
        changing("delta", path="p"),
    ],
)
def test_sinks_that_take_a_changelog(sink: StreamDef) -> None:
    check_connector(sink)
    check_sink(sink, changelog=True)


def test_print_takes_a_column_for_the_weight_in_a_changelog_only(spark: SparkSession, tmp_path: Path) -> None:
    shown: list[tuple[Sequence[str], object, int]] = []
    rows = spark.createDataFrame([(1, -1)], "id INT, _tp_delta INT")
    for changelog in True, False:
        sink = open_sink(stream("print"), tmp_path, changelog=changelog, show=lambda *told: shown.append(told))
        sink.write(rows, 0, "q")
    assert shown == [(["id"], [(-1, (1,))], 0), (["id", "_tp_delta"], [(1, (1, -1))], 0)]


def test_columns_go_by_position_also_a_weight_that_was_selected(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(7, 1)], "id INT, _tp_delta INT")
    target = stream("files", "a BIGINT,d INT,c STRING")
    assert [row.asDict() for row in to_columns(rows, target, ("d", "a")).collect()] == [{"a": 1, "d": 7, "c": None}]
    changelog = to_columns(rows, target, ("a",))
    assert [row.asDict() for row in changelog.collect()] == [{"a": 7, "d": None, "c": None, "_tp_delta": 1}]


def test_a_value_that_spark_cannot_cast_names_the_target(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = spark.createDataFrame([(True,)], "x BOOLEAN")
    with pytest.raises(BindError, match=r'the query does not fit s: Cannot resolve .* cannot cast "BOOLEAN" to "DATE"'):
        to_columns(rows, stream("files", "a DATE"), ())
    assert "AnalysisException" not in capfd.readouterr().err


def test_the_weight_of_a_stream_that_changes_is_a_column_of_its_log(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(7, -1)], "x INT, y INT")
    log = changing("embedded")
    chosen = to_columns(rows, log, ("id", "_tp_delta")).schema
    assert chosen.simpleString() == "struct<id:int,_tp_delta:tinyint>"
    assert to_columns(rows.select("x"), log, ()).collect() == [(7, 1)]
    assert to_columns(rows.select("x"), changing("files"), ()).columns == ["id"]


def test_the_weight_of_a_changelog_reaches_a_target_that_changes(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(7, 5, -1)], "x INT, y INT, _tp_delta TINYINT")
    for target in changing("embedded"), changing("kafka"), with_delta("kafka"):
        found = to_columns(rows.drop("y"), target, ("id",))
        assert (found.columns, found.collect()) == (["id", "_tp_delta"], [(7, -1)])
    selected = to_columns(rows.drop("x", "y"), changing("jdbc"), ())
    assert (selected.columns, selected.collect()) == (["id", "_tp_delta"], [(-1, -1)])
    assert to_columns(rows.drop("y"), with_delta("kafka"), ()).collect() == [(7, -1)], "it was selected"
    with pytest.raises(UnsupportedError, match="s: its column _tp_delta takes that of the query's changelog"):
        to_columns(rows, with_delta("kafka"), ())


def test_resolved_secrets_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WM_TEST_HIDDEN", "very-secret")
    assert resolve("${env:WM_TEST_HIDDEN}") == "very-secret"
    assert hide("login with very-secret failed") == "login with *** failed"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (stream("embedded", "id INT"), False),
        (stream("files", "id INT", path="p"), False),
        (stream("files", "id INT", path="p", max_files_per_trigger="1"), True),
        (stream("kafka", "id INT", brokers="b:1", topic="t"), False),
        (stream("kafka", "id INT", brokers="b:1", topic="t", max_offsets_per_trigger="9"), True),
        (stream("delta", "id INT", path="p"), False),
        (stream("delta", "id INT", path="p", max_files_per_trigger="1"), True),
        (stream("datagen", "id INT"), True),
    ],
)
def test_which_streams_limit_batches(given: StreamDef, wanted: bool) -> None:
    assert limits_batches(given) is wanted
