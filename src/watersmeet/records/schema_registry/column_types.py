"""Columns and the fields of a schema: which belong together, and which columns take the values of a field."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from watersmeet.columns import same_name
from watersmeet.errors import ConfigError, did_you_mean
from watersmeet.expressions.type_names import spark_type


def required_field(column: str, known: Collection[str], where: str) -> str:
    """The field for a declared column: see ``same_name``; raises ``ConfigError`` if there is none."""
    found = same_name(column, known)
    if found is None:
        raise ConfigError(
            f"column {column} is not in {where}",
            hint=did_you_mean(column, known) or "registry.version names an earlier version that has it",
        )
    return found


def require_convertible(path: str, natural: pa.DataType | None, declared: pa.DataType) -> None:
    """Raise ``ConfigError`` if no value of a schema's type (None: of several types) fits a declared column."""
    if natural is None:
        return None
    if pa.types.is_list(natural) and pa.types.is_list(declared):
        return require_convertible(f"{path}[…]", natural.value_type, declared.value_type)
    if pa.types.is_map(natural) and pa.types.is_map(declared):
        require_convertible(f"a key of {path}", natural.key_type, declared.key_type)
        return require_convertible(f"a value of {path}", natural.item_type, declared.item_type)
    if pa.types.is_struct(natural) and pa.types.is_struct(declared):
        names = [each.name for each in natural]
        for each in declared:
            found = same_name(each.name, names)
            if found is None:
                raise ConfigError(
                    f"column {path}.{each.name} is not in the schema", hint=did_you_mean(each.name, names)
                )
            require_convertible(f"{path}.{each.name}", natural.field(found).type, each.type)
        return None
    if not _is_convertible(natural, declared):
        raise ConfigError(
            f"column {path} is declared {spark_type(declared)}, but the schema has {spark_type(natural)}",
            hint=f"declare it {spark_type(natural)}, and CAST it in the query",
        )
    return None


def _is_convertible(natural: pa.DataType, declared: pa.DataType) -> bool:
    if natural == declared:
        return True
    if _is_number(declared):
        return _is_number(natural) or natural == pa.string()
    return natural == pa.string() and (pa.types.is_timestamp(declared) or declared in (pa.date32(), pa.bool_()))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
