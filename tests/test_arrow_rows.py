"""Results as data frames: values and types survive."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from watersmeet import extras
from watersmeet.arrow_rows import ArrowRows
from watersmeet.errors import BindError, ConfigError

INTEGERS = {f"{kind}{bits}": getattr(pa, f"{kind}{bits}")() for kind in ("int", "uint") for bits in (8, 16, 32, 64)}


@dataclass
class Rows(ArrowRows):
    table: pa.Table

    def to_arrow(self) -> pa.Table:
        return self.table


def test_whole_numbers_and_booleans_beside_null_stay_exact_in_pandas() -> None:
    greatest = 2**63 - 1  # as a float it would be 2**63
    frame = Rows(pa.table({"n": [greatest, None], "b": [True, None]})).to_pandas()
    assert frame["n"][0] == greatest
    assert frame["n"].isna()[1]
    assert frame["b"].tolist()[0] is True
    assert (str(frame["n"].dtype), str(frame["b"].dtype)) == ("Int64", "boolean")


@pytest.mark.parametrize("name", INTEGERS)
def test_every_width_of_whole_numbers_has_its_type_in_pandas(name: str) -> None:
    frame = Rows(pa.table({"n": pa.array([1, None], INTEGERS[name])})).to_pandas()
    assert str(frame["n"].dtype).lower() == name


def test_times_decimals_texts_and_lists_are_the_same_in_both() -> None:
    row = {
        "t": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),  # beyond what nanoseconds can hold
        "d": Decimal("1.10"),
        "s": "é",
        "day": date(1, 1, 1),
        "l": [1, 2],
    }
    rows = Rows(pa.Table.from_pylist([row]))
    pandas, polars = rows.to_pandas(), rows.to_polars()
    assert pandas["t"][0].to_pydatetime() == row["t"]
    assert (pandas["d"][0], pandas["s"][0], pandas["day"][0], list(pandas["l"][0])) == tuple(row.values())[1:]
    assert polars.row(0, named=True) == row


def test_columns_of_one_name_are_refused_where_polars_cannot_have_them() -> None:
    rows = Rows(pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["a", "b", "a"]))
    with pytest.raises(BindError, match="one name, but there are several of: a\nhint: name them with AS"):
        rows.to_polars()
    assert rows.to_pandas().to_numpy().tolist() == [[1, 2, 3]]


def test_without_polars_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_is_there", lambda module: module != "polars")
    with pytest.raises(
        ConfigError, match=r"to_polars\(\) needs packages that are not installed: polars\nhint.*\[polars\]"
    ):
        Rows(pa.table({"a": [1]})).to_polars()
