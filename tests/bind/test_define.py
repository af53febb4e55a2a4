"""CREATE STREAM for changing streams."""

from __future__ import annotations

import pytest

from watersmeet.bind.define import define_frame, define_stream
from watersmeet.bind.insert_target import check_target, takes_column
from watersmeet.catalog.streams import FRAME, StreamDef, StreamMode
from watersmeet.errors import BindError, UnsupportedError, WatersmeetError
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import CreateStream, InsertSelect

VERSIONED, CHANGELOG = StreamMode.VERSIONED, StreamMode.CHANGELOG


def defined(sql: str) -> StreamDef:
    (statement,) = parse(sql)
    assert isinstance(statement, CreateStream)
    return define_stream(statement)


@pytest.mark.parametrize(
    ("sql", "mode", "key"),
    [
        ("CREATE MUTABLE STREAM l (i int, k string, k1 string) PRIMARY KEY (k, K1)", VERSIONED, ("k", "k1")),
        ("CREATE STREAM r (c string, ts TIMESTAMP) PRIMARY KEY (c) SETTINGS mode = 'versioned_kv'", VERSIONED, ("c",)),
        ("CREATE MUTABLE STREAM r (c string PRIMARY KEY) SETTINGS mode = 'versioned_kv'", VERSIONED, ("c",)),
        ("CREATE STREAM u (Id int) PRIMARY KEY (id) SETTINGS mode = 'changelog_kv'", CHANGELOG, ("Id",)),
        ("CREATE STREAM a (id int) SETTINGS mode = 'append'", StreamMode.APPEND, ()),
    ],
)
def test_modes(sql: str, mode: StreamMode, key: tuple[str, ...]) -> None:
    stream = defined(sql)
    assert (stream.mode, stream.primary_key, stream.changes) == (mode, key, bool(key))


def test_delta_can_be_declared() -> None:
    for kind in ("TINYINT", "SMALLINT", "INT", "BIGINT"):
        users = defined(f"CREATE STREAM u (id int, _TP_DELTA {kind}) PRIMARY KEY (id) SETTINGS mode = 'changelog_kv'")
        assert [(column.name, column.type) for column in users.columns] == [("id", "INT"), ("_tp_delta", kind)]


@pytest.mark.parametrize(
    ("sql", "message", "column", "hint"),
    [
        ("CREATE MUTABLE STREAM u (id int)", "u is MUTABLE and has no PRIMARY KEY", 1, "add PRIMARY KEY"),
        ("CREATE STREAM u (i int) SETTINGS mode = 'changelog_kv'", "u is of mode changelog_kv and has no", 34, "add"),
        ("CREATE STREAM u (id int PRIMARY KEY)", "only appended: none replaces another", 1, "CREATE MUTABLE STREAM"),
        ("CREATE STREAM u (i int) PRIMARY KEY (i) SETTINGS mode = 'append'", "only appended", 50, "'changelog_kv'"),
        ("CREATE MUTABLE STREAM u (id int) PRIMARY KEY (idd)", "(idd): u has no such column", 47, "did you mean id?"),
        ("CREATE MUTABLE STREAM u (id int) PRIMARY KEY (id, ID)", "PRIMARY KEY names id twice", 51, ""),
        ("CREATE MUTABLE STREAM u (a ARRAY<INT>) PRIMARY KEY (a)", "a is ARRAY<INT>: a PRIMARY KEY cannot", 26, ""),
        ("CREATE MUTABLE STREAM u (a MAP<INT, INT>) PRIMARY KEY (a)", "a is MAP<INT, INT>", 26, ""),
        ("CREATE MUTABLE STREAM u (a STRUCT<b: INT>) PRIMARY KEY (a)", "a is STRUCT<b: INT>", 26, ""),
        ("CREATE MUTABLE STREAM u (_tp_delta int) PRIMARY KEY (_tp_delta)", "cannot be in the PRIMARY KEY", 26, ""),
        (
            "CREATE MUTABLE STREAM u (i int) PRIMARY KEY (i) SETTINGS mode = 'changelog_kv'",
            "a MUTABLE stream has mode = 'versioned_kv', not 'changelog_kv'",
            58,
            "leave out MUTABLE",
        ),
        (
            "CREATE STREAM u (i int) SETTINGS mode = 'upsert'",
            "'upsert' is not a mode",
            34,
            "versioned_kv, changelog_kv",
        ),
        ("CREATE STREAM u (i int, _tp_delta int)", "this stream is append-only", 25, "'versioned_kv' or 'changel"),
        ("CREATE MUTABLE STREAM u (i int PRIMARY KEY, _tp_delta string)", "_tp_delta is STRING", 45, "TINYINT"),
    ],
)
def test_streams_that_cannot_change(sql: str, message: str, column: int, hint: str) -> None:
    with pytest.raises(WatersmeetError) as refused:
        defined(sql)
    assert message in refused.value.message
    assert refused.value.position is not None
    assert refused.value.position.col == column
    assert hint in (refused.value.hint or "")


def test_insert_can_name_the_delta_of_an_embedded_changing_stream() -> None:
    embedded = "CREATE MUTABLE STREAM u (id int PRIMARY KEY)"
    given = [embedded, f"{embedded} WITH (connector = 'files', path = 'p')", "CREATE STREAM u (id int)"]
    assert [takes_column(defined(sql), "_TP_Delta") for sql in given] == [True, False, False]
    (statement,) = parse("INSERT INTO u (id, _tp_delta) SELECT a.id, -1 FROM a")
    assert isinstance(statement, InsertSelect)
    check_target(defined(embedded), ["id", "d"], statement)
    with pytest.raises(BindError, match="u has no column _tp_delta"):
        check_target(defined(given[2]), ["id", "d"], statement)


@pytest.mark.parametrize(
    ("stream", "is_refused"),
    [
        ("CREATE MUTABLE STREAM u (id int PRIMARY KEY, TS TIMESTAMP)", True),
        ("CREATE STREAM u (id int, at TIMESTAMP, WATERMARK FOR at AS at)", True),
        ("CREATE STREAM u (id int, timestamp STRING)", False),
        ("CREATE STREAM u (id int, ts TIMESTAMP) WITH (connector = 'files', path = 'p')", False),
    ],
)
def test_insert_names_the_event_time_of_an_embedded_stream(stream: str, is_refused: bool) -> None:
    """Its rows could not be read without; other targets may never be."""
    target = defined(stream)
    (statement,) = parse("INSERT INTO u (id) SELECT a.id FROM a")
    assert isinstance(statement, InsertSelect)
    if not is_refused:
        check_target(target, ["id"], statement)
        return
    with pytest.raises(BindError, match=f"leaves out {target.time_column}, its event time") as refused:
        check_target(target, ["id"], statement)
    assert refused.value.position == statement.position


@pytest.mark.parametrize(
    ("stream", "named", "message"),
    [
        (
            "CREATE MUTABLE STREAM u (id INT, K INT, v INT) PRIMARY KEY (id, k)",
            "id, v",
            "leaves out K of its PRIMARY KEY",
        ),
        (
            "CREATE MUTABLE STREAM u (id INT PRIMARY KEY) WITH (connector = 'files', path = 'p')",
            "_tp_delta",
            "leaves out id",
        ),
        ("CREATE STREAM u (id INT, v INT)", "id, v, ID", "names id twice"),
    ],
)
def test_insert_names_each_column_of_a_key_once(stream: str, named: str, message: str) -> None:
    (statement,) = parse(f"INSERT INTO u ({named}) SELECT {named} FROM a")
    assert isinstance(statement, InsertSelect)
    with pytest.raises(BindError, match=message):
        check_target(defined(stream), named.split(", "), statement)


def test_a_changing_frame() -> None:
    columns = [("c", "string"), ("_tp_delta", "int"), ("ts", "timestamp")]
    frame = define_frame("f", columns, "ts", "0 seconds", "ms", mode="changelog_kv", primary_key=["c"])
    assert (frame.connector, frame.mode, frame.primary_key) == (FRAME, CHANGELOG, ("c",))
    with pytest.raises(BindError, match="append-only") as refused:
        define_frame("f", columns, "ts", "0 seconds", "ms")
    assert refused.value.position is None


@pytest.mark.parametrize("kind", ["string collate UNICODE_CI", "struct<a:string collate UTF8_LCASE>"])
def test_a_frame_with_a_collation_is_refused(kind: str) -> None:
    with pytest.raises(UnsupportedError, match=r"column c of f: the collation U\w+ is not supported"):
        define_frame("f", [("c", kind), ("ts", "timestamp")], "ts", "0 seconds", "ms")
    define_frame("f", [("c", "string collate UTF8_BINARY"), ("ts", "timestamp")], "ts", "0 seconds", "ms")
