"""Lookups on Spark: a real PostgreSQL server that is up, down and up again; a batch DataFrame as the table."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.support.jobs import json_rows, run_job
from tests.support.postgres import Postgres
from watersmeet.errors import CatalogError, ConnectorError, UnsupportedError
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Message, Table

pytestmark = pytest.mark.spark

JOB = (
    "INSERT INTO sink SELECT o.id, c.name FROM orders o "
    "LEFT JOIN customers FOR SYSTEM_TIME AS OF PROCTIME() c ON o.customer_id = c.id SETTINGS buckets = 2"
)


def test_a_table_that_is_not_there_is_told_before_the_query_starts_and_where_it_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    session.sql(f"""
        CREATE STREAM orders (id INT, customer_id BIGINT);
        CREATE TABLE customers (id BIGINT, name STRING) WITH (connector = 'files', path = '{tmp_path / "none"}');
        CREATE STREAM sink WITH (connector = 'files', path = '{tmp_path / "out"}', format = 'json')
    """)
    with pytest.raises(ConnectorError, match="there is no file or folder") as failed:
        run_job(session, JOB)
    assert str(failed.value.position) == f"line 1, column {JOB.index('customers FOR') + 1}"
    assert not list((tmp_path / "workspace").glob("queries/*/spark/offsets/*"))


@pytest.mark.slow
def test_a_query_stops_while_the_database_is_down_and_loses_nothing(
    spark: SparkSession, postgres: Postgres, tmp_path: Path
) -> None:
    postgres.execute(
        "DROP TABLE IF EXISTS people_on_spark",
        "CREATE TABLE people_on_spark (id bigint PRIMARY KEY, name text)",
        "INSERT INTO people_on_spark VALUES (1, 'anna'), (2, 'bert')",
    )
    secret = tmp_path / "password"
    secret.write_text(postgres.password)
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    table = f"""CREATE TABLE customers (id BIGINT, name STRING) WITH (
        connector = 'jdbc', url = '{postgres.url}', table = 'people_on_spark', user = 'postgres',
        password = '${{file:{secret}}}', lookup_max_retries = 1
    );"""
    session.sql(f"""
        CREATE STREAM orders (id INT, customer_id BIGINT);
        {table}
        CREATE STREAM sink WITH (connector = 'files', path = '{tmp_path / "out"}', format = 'json')
    """)
    session.sql("INSERT INTO orders VALUES (10, 1), (11, 2), (12, 3), (13, NULL)")
    (query,) = run_job(session, JOB, QueryMode.DRAIN)
    first = [(10, "anna"), (11, "bert"), (12, None), (13, None)]
    assert json_rows(tmp_path / "out") == first
    assert query.report().state_rows == 0
    counted = {name.removeprefix("join_1.lookup_"): value for name, value in query.report().counters.items()}
    assert counted.pop("queries") <= 2, "one for each bucket"
    assert counted == {"hits": 0, "misses": 3, "fetched": 2, "failed": 0}

    postgres.stop()
    session.sql("INSERT INTO orders VALUES (14, 2), (15, 3)")
    with pytest.raises(ConnectorError, match=r"customers \(people_on_spark\) failed after 2 attempts: .*refused"):
        run_job(session, JOB, QueryMode.DRAIN)
    assert json_rows(tmp_path / "out") == first

    postgres.start()
    postgres.execute("INSERT INTO people_on_spark VALUES (3, 'carl')")
    # the connection may change: nothing in the checkpoint depends on it
    session.sql(f"DROP TABLE customers; {table.replace('retries = 1', 'retries = 5')}")
    run_job(session, JOB, QueryMode.DRAIN)
    assert json_rows(tmp_path / "out") == [*first, (14, "bert"), (15, "carl")]

    kept = [path for path in (tmp_path / "workspace").rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if postgres.password.encode() in path.read_bytes()]


def test_tables_are_kept_apart_from_streams(spark: SparkSession, tmp_path: Path) -> None:
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    create = "CREATE TABLE c (id INT, ts TIMESTAMP) WITH (connector = 'files', path = '/c')"
    assert session.sql(create) == Message("created table c")
    assert session.sql(create) == Message("table c is there already")
    session.sql("CREATE STREAM o (id INT)")
    assert session.sql("SHOW TABLES") == Table(("table", "connector"), [("c", "files")])
    shown = session.sql("SHOW STREAMS")
    assert isinstance(shown, Table)
    assert [row[0] for row in shown.rows] == ["o"]
    described = session.sql("DESCRIBE c")
    assert described == Table(("column", "type", "note"), [("id", "INT", ""), ("ts", "TIMESTAMP", "")])
    for statement, error in (
        ("INSERT INTO c VALUES (1, NULL)", "c is an external table: queries only look up rows in it"),
        ("INSERT INTO c SELECT id, NULL FROM o", "c is an external table: queries only look up rows in it"),
    ):
        with pytest.raises(UnsupportedError, match=error):
            session.sql(statement)
    for statement, error in (
        ("DROP STREAM c", r"there is no stream c .*\nhint: DROP TABLE c"),
        ("DROP TABLE o", r"there is no table o .*\nhint: DROP STREAM o"),
        ("DROP TABLE d", "there is no table d"),
        ("CREATE STREAM c (id INT)", "there is a table c already"),
        ("CREATE TABLE o (id INT) WITH (connector = 'files', path = '/c')", "there is a stream o already"),
    ):
        with pytest.raises(CatalogError, match=error):
            session.sql(statement)
    assert session.sql("DROP TABLE c") == Message("dropped table c")
    assert session.sql("DROP TABLE IF EXISTS c") == Message("there is no table c")


def test_lookup_join_in_python_over_a_batch_frame(spark: SparkSession, tmp_path: Path) -> None:
    orders = spark.createDataFrame([(10, 1), (11, 2), (12, None)], "id INT, customer INT")
    orders.write.parquet(str(tmp_path / "orders"))
    stream = spark.readStream.schema(orders.schema).parquet(str(tmp_path / "orders"))
    table = spark.createDataFrame([(1, "anna"), (3, "carl")], "id INT, name STRING")
    joined = watersmeet.lookup_join(stream, table, on=[("customer", "id")], how="left", where="`right`.name < 'c'")
    query = (
        joined.writeStream.format("memory")
        .queryName("looked_up")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert query.exception() is None
    assert sorted(map(tuple, spark.table("looked_up").collect())) == [
        (10, 1, 1, "anna"),
        (11, 2, None, None),
        (12, None, None, None),
    ]
