"""Types of columns: what SQL calls them, and which take the values of a schema's types."""

from __future__ import annotations

import pyarrow as pa

from watersmeet.errors import ConfigError, did_you_mean


def name_of(kind: pa.DataType) -> str:
    """A type as SQL calls it, in messages."""
    if pa.types.is_list(kind):
        return f"ARRAY<{name_of(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{name_of(kind.key_type)}, {name_of(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{each.name}: {name_of(each.type)}' for each in kind)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return _NAMES[kind]


def field_of(name: str, known: list[str]) -> str | None:
    """The field of that exact name, else the only one of that name without case; None if there is none."""
    if name in known:
        return name
    alike = [each for each in known if each.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


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
            found = field_of(each.name, names)
            if found is None:
                raise ConfigError(
                    f"column {path}.{each.name} is not in the schema", hint=did_you_mean(each.name, names)
                )
            require_convertible(f"{path}.{each.name}", natural.field(found).type, each.type)
        return None
    if not _is_convertible(natural, declared):
        raise ConfigError(
            f"column {path} is declared {name_of(declared)}, but the schema has {name_of(natural)}",
            hint=f"declare it {name_of(natural)}, and CAST it in the query",
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


_NAMES = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
}
