"""Results with rows, as Arrow tables and as data frames of pandas and Polars."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from watersmeet.charts.chart import Chart, chart_of
from watersmeet.errors import BindError
from watersmeet.extras import require_extra

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


class ArrowRows(ABC):
    """A result whose rows can be taken out."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table."""

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows as a pandas DataFrame.

        Columns of whole numbers and of booleans are pandas' nullable ones (``Int64``, ``boolean``), so that NULL turns
        no number into a float, and the types do not depend on the rows.
        """
        frame: pd.DataFrame = self.to_arrow().to_pandas(types_mapper=_nullable_type)
        return frame

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as a Polars DataFrame.

        Raises ``ConfigError`` if Polars is not installed, ``BindError`` if two columns have one name.
        """
        require_extra("polars", "to_polars()", ("polars",))
        import polars as pl

        rows = self.to_arrow()
        twice = [name for name, count in Counter(rows.column_names).items() if count > 1]
        if twice:
            raise BindError(
                f"Polars takes no two columns of one name, but there are several of: {', '.join(twice)}",
                hint="name them with AS",
            )
        frame = pl.from_arrow(rows)
        assert isinstance(frame, pl.DataFrame)
        return frame

    def chart(self, *, x: str, y: str | Sequence[str], kind: str = "line") -> Chart:
        """Return a chart of one column or several (``y``: numbers) over another one, of all rows.

        ``kind`` is ``line``, where ``x`` is a number or a time, or ``bar``: a bar for each row, named by ``x``.

        Raises ``ConfigError`` for another kind, ``BindError`` for columns that are not there or cannot be drawn, and
        ``LimitError`` for more than 100 bars.
        """
        return chart_of(self.to_arrow(), x, y, kind)


def python_values(column: pa.Array | pa.ChunkedArray) -> list[object]:
    """Return the values of a column; a map is a dictionary, which an empty list of its entries would not tell."""
    values = column.to_pylist()
    return [_with_dicts(value, column.type) for value in values] if _has_map(column.type) else list(values)


def _has_map(type: pa.DataType) -> bool:
    return pa.types.is_map(type) or any(_has_map(type.field(place).type) for place in range(type.num_fields))


def _with_dicts(value: Any, type: pa.DataType) -> object:
    if value is None or not _has_map(type):
        return value
    if pa.types.is_map(type):
        entries = ((_with_dicts(key, type.key_type), _with_dicts(each, type.item_type)) for key, each in value)
        return {str(key) if isinstance(key, list | dict) else key: each for key, each in entries}
    if pa.types.is_struct(type):
        return {field.name: _with_dicts(value[field.name], field.type) for field in type}
    return [_with_dicts(each, type.value_type) for each in value]


def _nullable_type(type: pa.DataType) -> object:
    import pandas as pd

    if pa.types.is_boolean(type):
        return pd.BooleanDtype()
    if pa.types.is_integer(type):
        return pd.api.types.pandas_dtype(str(type).replace("i", "I").replace("u", "U"))  # Arrow's int8 is Int8
    return None
