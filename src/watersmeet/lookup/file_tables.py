"""Parquet files and Delta tables as external tables.

Every query lists the files again, so rows that are not cached are as new as the table.
"""

from __future__ import annotations

import functools
import importlib.util
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import FileType

from watersmeet.errors import ConnectorError, did_you_mean
from watersmeet.expressions.type_names import spark_type
from watersmeet.filesystems import delta_options, filesystem_of
from watersmeet.lookup.source import UnavailableError, both_names, cast_columns
from watersmeet.settings.secrets import hide, masked_value, resolve


@dataclass(frozen=True, slots=True)
class FilesSource:
    """Parquet files under a path, or with ``delta`` the Delta table there; its name in SQL is ``known_as``.

    Only columns of ``schema`` are read.
    """

    path: str
    schema: pa.Schema
    delta: bool = False
    known_as: str = ""

    @property
    def name(self) -> str:
        """The table's name in SQL and its path, without secrets."""
        return both_names(self.known_as, self._shown)

    @property
    def max_keys(self) -> int | None:
        """Any number (None)."""
        return None

    def check(self) -> None:
        """Check that the table exists and has the columns."""
        with _reading(self._shown):
            filesystem, inner = filesystem_of(resolve(self.path))
            if filesystem.get_file_info(inner).type is FileType.NotFound:
                raise ConnectorError(
                    f"there is no file or folder {self._shown}",
                    hint="correct the option path, or write the table first",
                )
            if self.delta and not _is_delta(resolve(self.path)):
                raise ConnectorError(f"{self._shown} is no Delta table", hint="connector = 'files' reads Parquet files")
            self._open()

    def fetch(self, keys: pa.Table) -> pa.Table:
        """Return the rows of the keys."""
        with _reading(self._shown):
            dataset = self._open()
            tests = [_is_in(dataset.schema.field(name), keys[name]) for name in keys.column_names]
            rows = dataset.to_table(columns=self.schema.names, filter=functools.reduce(operator.and_, tests))
        return cast_columns(rows, self.schema, self._shown)

    @property
    def _shown(self) -> str:
        return masked_value("path", self.path)

    def _open(self) -> ds.Dataset:
        path = resolve(self.path)
        dataset = _delta(path) if self.delta else _parquet(path)
        if not dataset.schema.names:
            raise ConnectorError(f"{self._shown} holds no Parquet file", hint="write the table first")
        for name in self.schema.names:
            if name not in dataset.schema.names:
                raise ConnectorError(
                    f"{self._shown} has no column {name}", hint=did_you_mean(name, dataset.schema.names)
                )
            declared, actual = self.schema.field(name), dataset.schema.field(name)
            if not type_fits(declared.type, actual.type):
                raise ConnectorError(
                    f"column {name} of {self._shown} is {spark_type(actual.type)}: it cannot be declared as "
                    f"{spark_type(declared.type)}",
                    hint="declare the type that the table has, or look up in a table that casts it",
                )
        return dataset


def require_delta() -> None:
    """Raise ``ConnectorError`` where the package of the extra ``delta`` is not installed."""
    if importlib.util.find_spec("deltalake") is None:
        raise ConnectorError(
            "connector = 'delta' needs the package deltalake",
            hint="pip install '.[delta]' in a clone of Watersmeet, on every worker",
        )


def _parquet(path: str) -> ds.Dataset:
    filesystem, inner = filesystem_of(path)
    return ds.dataset(inner, format="parquet", partitioning="hive", filesystem=filesystem)


def _delta(path: str) -> ds.Dataset:
    require_delta()
    from deltalake import DeltaTable

    return DeltaTable(path, storage_options=delta_options(path)).to_pyarrow_dataset()


def _is_delta(path: str) -> bool:
    require_delta()
    from deltalake import DeltaTable

    return DeltaTable.is_deltatable(path, delta_options(path))


def type_fits(declared: pa.DataType, actual: pa.DataType) -> bool:
    """Return whether a column may be declared with a type: it has values of that kind, which may be too large."""
    if pa.types.is_dictionary(actual):
        actual = actual.value_type
    if declared == actual or pa.types.is_null(actual):
        return True
    return any(belongs(declared) and any(each(actual) for each in allowed) for belongs, *allowed in _KINDS)


_KINDS = (
    (pa.types.is_integer, pa.types.is_integer),
    (pa.types.is_floating, pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal),
    (pa.types.is_decimal, pa.types.is_decimal, pa.types.is_integer),
    # also whole numbers: Arrow infers them from names of partition folders
    (pa.types.is_string, pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_integer),
    (pa.types.is_binary, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary),
    (pa.types.is_date, pa.types.is_date),
    (pa.types.is_timestamp, pa.types.is_timestamp),
)


def _is_in(field: pa.Field, keys: pa.ChunkedArray) -> pc.Expression:
    """Return the condition that a column equals one of the keys. Where types agree, statistics of files apply."""
    column, wanted = pc.field(field.name), keys.combine_chunks()
    try:
        return column.isin(wanted.cast(field.type))
    except pa.ArrowInvalid:  # some keys are outside the column's type
        return column.cast(wanted.type).isin(wanted)


@contextmanager
def _reading(shown: str) -> Iterator[None]:
    """Translate errors of reading: files may be rewritten at this moment, so retries help; types do not change."""
    try:
        yield
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise ConnectorError(_reason(shown, error)) from None
    except (OSError, pa.ArrowException, *_delta_errors()) as error:
        raise UnavailableError(_reason(shown, error)) from error


def _delta_errors() -> tuple[type[Exception], ...]:
    if importlib.util.find_spec("deltalake") is None:
        return ()
    from deltalake.exceptions import DeltaError

    return (DeltaError,)


def _reason(shown: str, error: Exception) -> str:
    return f"{shown} cannot be read: {hide((str(error).splitlines() or [type(error).__name__])[0])}"
