"""From a table's definition to its source, and errors for missing packages."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.lookup.tables import keys, rows
from watersmeet.bind.define import define_outside
from watersmeet.errors import ConfigError, ConnectorError
from watersmeet.lookup.connections import Address
from watersmeet.lookup.file_tables import FilesSource
from watersmeet.lookup.jdbc import JdbcSource
from watersmeet.lookup.tables import open_table

JDBC = {"connector": "jdbc", "url": "jdbc:postgresql://db/shop", "table": "c", "lookup_timeout": "3 seconds"}


def test_a_database_is_asked_for_the_columns_that_are_needed() -> None:
    source = open_table(define_outside("t", "id BIGINT, name STRING, at TIMESTAMP", JDBC), ["id", "AT"])
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    assert source == JdbcSource(Address(JDBC["url"], None, None, 3.0), "c", schema, "t")
    assert source.name == "t (c)"


def test_parquet_files_are_asked_too(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2], "name": ["one", "two"]}), tmp_path / "a.parquet")
    table = define_outside("c", "id INT, name STRING", {"connector": "files", "path": str(tmp_path)})
    assert rows(open_table(table, ["id", "name"]).fetch(keys(2))) == [(2, "two")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (JDBC, r"needs the package sqlalchemy and psycopg\nhint: pip install '\.\[jdbc\]'"),
        ({"connector": "delta", "path": "/c"}, r"needs the package deltalake\nhint: pip install '\.\[delta\]'"),
    ],
)
def test_a_missing_package(monkeypatch: pytest.MonkeyPatch, options: dict[str, str], message: str) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConnectorError, match=message):
        open_table(define_outside("c", "id INT", options), ["id"])


def test_secrets_are_resolved_only_where_the_database_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    address = Address("jdbc:postgresql://db:5433/shop?user=anna&sslmode=require", None, "${env:LOOKUP_PW}", 1.0)
    monkeypatch.setenv("LOOKUP_PW", "s3cret/@:")
    url = address.resolved()
    assert (url.drivername, url.username, url.password) == ("postgresql+psycopg", "anna", "s3cret/@:")
    assert dict(url.query) == {"sslmode": "require"}
    assert "s3cret" not in f"{address!r} {url!r} {url}"


def test_references_in_every_part_of_a_url_are_resolved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secret = tmp_path / "a@b?c:d"
    secret.write_text("x:y@z/%41")
    monkeypatch.setenv("LOOKUP_PW", "s3cret/@:")
    monkeypatch.setenv("LOOKUP_HOST", "db")
    user = "${env:LOOKUP_PW}:${file:" + str(secret) + "}"
    written = f"jdbc:postgresql://{user}@${{env:LOOKUP_HOST}}:5433/shop?sslpassword=${{env:LOOKUP_PW}}&sslmode=require"
    url = Address(written, None, None, 1.0).resolved()
    assert (url.username, url.password) == ("s3cret/@:", "x:y@z/%41")
    assert (url.host, url.port, url.database) == ("db", 5433, "shop")
    assert dict(url.query) == {"sslpassword": "s3cret/@:", "sslmode": "require"}


@pytest.mark.parametrize(
    "options",
    [
        {"connector": "jdbc", "url": "jdbc:postgresql://u:${env:P}geheim@h/d", "table": "t"},
        {"connector": "jdbc", "url": "jdbc:postgresql://h/d", "table": "t", "password": "${env:P}geheim"},
        {"connector": "files", "path": "s3://key:geheim@bucket"},
        {"connector": "delta", "path": "s3://bucket?secret_key=geheim"},
    ],
)
def test_every_connector_of_tables_refuses_a_secret_in_clear_text(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="holds a secret written out") as raised:
        open_table(define_outside("t", "id BIGINT", options), ["id"])
    assert raised.value.option in options
    assert "geheim" not in str(raised.value)


def test_a_path_with_a_secret_is_not_printed(tmp_path: Path) -> None:
    source = FilesSource(f"{tmp_path}/none?token=geheim", pa.schema([("id", pa.int64())]), known_as="t")
    assert source.name == "t (***)"
    with pytest.raises(ConnectorError, match=r"there is no file or folder \*\*\*"):
        source.check()
