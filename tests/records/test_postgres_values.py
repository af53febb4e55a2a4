"""Text of PostgreSQL as the declared types: at once or value by value, the result is the same."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.records.postgres_values import converted

_UTC, _HERE = pa.timestamp("us", "UTC"), pa.timestamp("us")
_INTS, _TEXTS = pa.list_(pa.int32()), pa.list_(pa.string())
_LARGE = "12345678901234567890123456789.123456789"
_AT = dt.datetime.fromisoformat("2024-02-29T10:00:00.120000")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.bool_(), "t", True),
        (pa.int8(), "-128", -128),
        (pa.int64(), "9007199254740993", 9007199254740993),
        (pa.int32(), "12.00", 12),  # of a NUMERIC
        (pa.float64(), "-Infinity", float("-inf")),
        (pa.float32(), "0.1", pa.scalar(0.1, pa.float32()).as_py()),
        (pa.decimal128(5, 2), "1.255", Decimal("1.26")),
        (
            pa.decimal128(38, 9),
            "-12345678901234567890123456789.123456789",
            Decimal("-12345678901234567890123456789.123456789"),
        ),
        (pa.string(), "", ""),
        (pa.binary(), "\\x00ff", b"\0\xff"),
        (pa.date32(), "0001-01-01", dt.date(1, 1, 1)),
        (_UTC, "2024-02-29 10:00:00.12+00", _AT.replace(tzinfo=dt.UTC)),
        (_HERE, "2024-02-29 10:00:00.12", _AT),
        (_INTS, "[0:1]={1,NULL}", [1, None]),
        (_INTS, "{}", []),
        (_TEXTS, '{"a,\\"b\\\\",NULL,"NULL",c}', ['a,"b\\', None, "NULL", "c"]),
        (pa.list_(_INTS), "{{1,2},{3,NULL}}", [[1, 2], [3, None]]),
    ],
)
def test_values(kind: pa.DataType, text: str, value: Any) -> None:
    for texts in ([text, None], [text, "no value of any type \\"]):
        if pa.types.is_string(kind):
            texts = texts[:1]
        found, _ = converted(pa.array(texts, pa.string()), kind, "c")
        assert found.type == kind
        assert found[0].as_py() == value


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        (pa.bool_(), "true", "is no BOOLEAN"),
        (pa.int32(), "2147483648", "is no INT: it is out of range"),
        (pa.int32(), "1.5", "is no INT"),
        (pa.int64(), "NaN", "is no BIGINT"),
        (pa.float32(), "1e39", "is no FLOAT: it is out of range"),
        (pa.float64(), "1e400", "is no DOUBLE: it is out of range"),
        (pa.decimal128(5, 2), "1000", "is no DECIMAL(5, 2): it is out of range"),
        (pa.decimal128(5, 2), "999.999", "it is out of range"),
        (pa.decimal128(5, 2), "Infinity", "is no DECIMAL(5, 2)"),
        (pa.binary(), "abc", "is no BINARY"),
        (pa.date32(), "infinity", "from the year 1 to the year 9999"),
        (_UTC, "-infinity", "from the year 1 to the year 9999"),
        (_UTC, "10000-01-01 00:00:00+00", "from the year 1 to the year 9999"),
        (_UTC, "0044-03-15 00:00:00+00 BC", "from the year 1 to the year 9999"),
        (_UTC, "2024-01-01 00:00:00", "is no TIMESTAMP"),
        (_HERE, "2024-01-01 00:00:00+00", "is no TIMESTAMP_NTZ"),
        (_INTS, "{{1}}", "it has more dimensions"),
        (pa.list_(_INTS), "{1}", "it has fewer dimensions"),
        (_INTS, "{1", "is no ARRAY<INT>"),
        (_INTS, "{1}}", "is no ARRAY<INT>"),
        (_INTS, "{x}", "is no ARRAY<INT>"),
    ],
)
def test_values_that_do_not_fit(kind: pa.DataType, text: str, says: str) -> None:
    found, reasons = converted(pa.array([None, text], pa.string()), kind, "c")
    assert found.to_pylist() == [None, None]
    assert list(reasons) == [1]
    assert reasons[1].startswith(f"column c: '{text}' is no ")
    assert says in reasons[1]


@given(
    st.lists(
        st.one_of(st.none(), st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"))), max_size=4
    )
)
def test_arrays_of_text(values: list[str | None]) -> None:
    def quoted(value: str | None) -> str:
        return "NULL" if value is None else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

    found, reasons = converted(pa.array(["{" + ",".join(map(quoted, values)) + "}"]), _TEXTS, "c")
    assert found.to_pylist() == [values]
    assert not reasons
