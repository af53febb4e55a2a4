"""``ordered_by`` in CREATE STREAM: what it takes, and what is refused."""

from __future__ import annotations

import pytest

from watersmeet.bind.define import define_frame, refuse_definitions
from watersmeet.catalog.streams import OrderTerm, StreamDef
from watersmeet.errors import BindError, ConfigError
from watersmeet.expressions.event_time import EventTime, TimeUnit
from watersmeet.session.listings import description
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import CreateStream
from watersmeet.testing.harness import load_script


def defined(order: str, rest: str = "") -> StreamDef:
    columns = "Sn BIGINT, a INT, b INT, at TIMESTAMP, local TIMESTAMP_NTZ, name STRING, ts TIMESTAMP"
    text = f"CREATE STREAM s ({columns}, WATERMARK FOR ts AS ts{rest}) WITH (ordered_by = '{order}'); SELECT sn FROM s;"
    streams, _ = load_script(text)
    return streams["s"]


@pytest.mark.parametrize(
    ("order", "lead"),
    [
        ("sn", EventTime("Sn", TimeUnit.ROWS)),
        ("`sn` ASC", EventTime("Sn", TimeUnit.ROWS)),
        ("(sn)", EventTime("Sn", TimeUnit.ROWS)),
        ("sn -- the number", EventTime("Sn", TimeUnit.ROWS)),
        ("at, a", EventTime("at", TimeUnit.TIMESTAMP)),
        ("local", EventTime("local", TimeUnit.TIMESTAMP_NTZ)),
        ("ts, sn", None),  # the event time itself
    ],
)
def test_the_first_column_may_date_rows(order: str, lead: EventTime | None) -> None:
    assert defined(order).lead == lead


def test_all_terms_are_kept() -> None:
    stream = defined("sn, a + b DESC, name")
    assert stream.ordered_by == (
        OrderTerm(expression="Sn"),
        OrderTerm(expression="a + b", descending=True),
        OrderTerm(expression="name"),
    )
    assert ("Sn", "BIGINT", "rows arrive in the order Sn, a + b DESC, name") in description(stream).rows
    assert StreamDef.model_validate_json(stream.model_dump_json()) == stream
    assert stream.options == {}


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("", "ordered_by = '' is no list of columns and expressions"),
        ("sn,", "ordered_by = 'sn,' is no list of columns and expressions"),
        ("sn, ,x", "ordered_by = 'sn, ,x' is no list of columns and expressions"),
        ("sn NULLS LAST", "ordered_by = 'sn NULLS LAST': NULLs are first in ascending order, last in descending order"),
        ("sn WITH FILL", "ordered_by = 'sn WITH FILL': NULLs are first in ascending order, last in descending order"),
        ("sn LIMIT 1", "ordered_by = 'sn LIMIT 1' is no list of columns and expressions"),
        ("sn; DROP TABLE s", "ordered_by = 'sn; DROP TABLE s' is no list of columns and expressions"),
        ("sn DESC", "ordered_by = 'sn DESC': its first term is a column in rising order"),
        ("a + b", "ordered_by = 'a + b': its first term is a column in rising order"),
        (
            "name",
            "ordered_by = 'name': name is STRING; the first term is a whole number, a TIMESTAMP or a TIMESTAMP_NTZ",
        ),
        ("sm", "ordered_by names sm: there is no such column"),
        ("t.sn", "ordered_by names t.sn: there is no such column"),
        ("sn, max(a)", "ordered_by takes expressions over one row, not MAX(a)"),
        ("sn, (SELECT 1)", "ordered_by takes expressions over one row, not SELECT 1"),
        ("sn, 1", "ordered_by: 1 reads no column"),
    ],
)
def test_what_is_refused(order: str, message: str) -> None:
    with pytest.raises(BindError) as raised:
        defined(order)
    assert raised.value.message == message
    assert raised.value.position is not None


def test_a_name_that_needs_quotes_is_shown_with_them() -> None:
    streams, _ = load_script("CREATE STREAM s (`a b` INT) WITH (ordered_by = '`a b`'); SELECT 1 AS x FROM s;")
    assert streams["s"].order_text == "`a b`"


def test_a_misspelt_option_is_told() -> None:
    with pytest.raises(ConfigError) as raised:
        load_script("CREATE STREAM s (sn INT) WITH (order_by = 'sn'); SELECT sn FROM s;")
    assert raised.value.hint == "did you mean ordered_by?"


def test_a_stream_whose_rows_change_has_no_order() -> None:
    with pytest.raises(BindError, match="rows of mode versioned_kv replace each other in any order"):
        define_frame(
            "s",
            [("k", "int"), ("sn", "int")],
            None,
            None,
            "ms",
            mode="versioned_kv",
            primary_key=["k"],
            ordered_by="sn",
        )


def test_a_derived_stream_takes_its_order_from_its_query() -> None:
    (statement,) = parse("CREATE STREAM d WITH (ordered_by = 'sn') AS SELECT sn FROM s")
    assert isinstance(statement, CreateStream)
    with pytest.raises(BindError, match="takes its columns and event time from its query, not ordered_by"):
        refuse_definitions(statement)


def test_a_dataframe_may_have_an_order() -> None:
    frame = define_frame("s", [("sn", "bigint"), ("ts", "timestamp")], "ts", "1 second", "ms", ordered_by="sn")
    assert frame.lead == EventTime("sn", TimeUnit.ROWS)
