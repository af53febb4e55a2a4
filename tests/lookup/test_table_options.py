"""The options of a table: defaults, durations, and what is refused."""

from __future__ import annotations

import pytest

from watersmeet.errors import ConfigError
from watersmeet.lookup.retry import OnError
from watersmeet.lookup.table_options import FilesTableOptions, JdbcOptions, parse_table_options

URL = "jdbc:postgresql://db:5432/shop"


def jdbc(**options: object) -> JdbcOptions:
    return parse_table_options(JdbcOptions, "jdbc", {"url": URL, "table": "customers", **options})


def test_defaults() -> None:
    given = jdbc()
    assert (given.lookup_cache_rows, given.lookup_cache_ttl, given.lookup_timeout) == (100_000, 60.0, 10.0)
    assert (given.retry_policy.max_retries, given.retry_policy.on_error) == (3, OnError.FAIL)


def test_what_is_written() -> None:
    given = jdbc(lookup_cache_rows="0", lookup_cache_ttl="5 minutes", lookup_timeout="500 ms", lookup_on_error="null")
    assert (given.lookup_cache_rows, given.lookup_cache_ttl, given.lookup_timeout) == (0, 300.0, 0.5)
    assert given.retry_policy.on_error is OnError.NULL


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lookup_cache_rows": "-1"}, "lookup_cache_rows"),
        ({"lookup_cache_ttl": "soon"}, "write a number and a unit"),
        ({"lookup_timeout": "0 s"}, "lookup_timeout"),
        ({"lookup_on_error": "ignore"}, "'fail', 'null' or 'retry'"),
        ({"lookup_cache_row": "1"}, "did you mean lookup_cache_rows"),
        ({"url": "postgresql://db/shop"}, "url"),
        ({"table": "a.b.c"}, "table"),
        ({"password": "geheim"}, "holds a secret written out"),
    ],
)
def test_what_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        jdbc(**options)


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:postgresql://anna:geheim@db/shop",
        "jdbc:postgresql://db/shop?user=anna&password=geheim",
        "jdbc:postgresql://db/shop?sslpassword=geheim",
    ],
)
def test_a_password_within_the_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="url holds a secret written out") as error:
        jdbc(url=url)
    assert "geheim" not in str(error.value)


@pytest.mark.parametrize(
    "url",
    ["jdbc:postgresql://anna:${env:PW}@db/shop", "jdbc:postgresql://db/shop?password=${file:/pw}&sslmode=require"],
)
def test_a_reference_within_the_url_is_taken(url: str) -> None:
    assert jdbc(url=url, password="${env:PW}").url == url


def test_files_need_a_path() -> None:
    with pytest.raises(ConfigError, match="files needs the option path"):
        parse_table_options(FilesTableOptions, "files", {})
