"""FOR SYSTEM_TIME AS OF: how versions of a table follow each other, what routes them, and which index finds them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from sqlglot import exp

from watersmeet.catalog.streams import Index, StreamMode
from watersmeet.columns import TP_DELTA
from watersmeet.kernels.asof.match import Versions
from watersmeet.kernels.match import Key
from watersmeet.plan.logical.tree import AsofClause, Input, InputColumn, Join, KeyPair


def routing_keys(join: Join, inputs: Sequence[Input], columns: Mapping[str, InputColumn]) -> list[KeyPair]:
    """The keys whose hash chooses a row's bucket.

    All versions of a table's row must meet in one bucket, whichever of its columns change: for a table with a primary
    key, and for a versioned view, only columns of that key count.
    """
    pairs = list(join.condition.keys)
    if join.asof is None or not join.asof.of_table:
        return pairs
    key = inputs[join.asof.right].entity_key
    return pairs if key is None else [pair for pair in pairs if _declared(pair.right, columns) in _lower(key)]


def versions_of(
    asof: AsofClause,
    input: Input,
    pairs: Sequence[KeyPair],
    keys: Sequence[Key],
    sequence: str,
    columns: Mapping[str, InputColumn],
) -> Versions:
    """How the rows of the right input follow each other; ``keys`` are the columns that travel for ``pairs``."""
    travelling = {_declared(pair.right, columns): key.right for pair, key in zip(pairs, keys, strict=True)}
    declared = {column.name.lower(): column.name for column in input.stream.columns}
    primary = tuple(travelling.get(name, input.physical(declared[name])) for name in _lower(input.stream.primary_key))
    by_key = tuple(dict.fromkeys(key.right for key in keys))
    if not input.stream.changes:
        named = input.entity_key if asof.of_table else None
        by = by_key if named is None else tuple(travelling.get(name.lower(), input.physical(name)) for name in named)
        return Versions(by, sequence if input.results is None else "")
    index = usable_index(input, travelling)
    return Versions(
        by=primary if asof.of_table else by_key,
        sequence=sequence,
        # rows of an ASOF join are routed by its key: a -1 must have the key of the row that it retracts
        identity=primary if asof.of_table else tuple(dict.fromkeys((*by_key, *primary))),
        weight=input.physical(TP_DELTA),
        takes_away=input.stream.mode is StreamMode.CHANGELOG,
        ends=asof.of_table,
        index=tuple(travelling[name] for name in _lower(index.columns)) if asof.of_table and index else (),
    )


def declared_keys(join: Join, columns: Mapping[str, InputColumn]) -> list[str]:
    """The columns of the right side that are keys by themselves, by lower-case name."""
    names = (_declared(pair.right, columns) for pair in join.condition.keys)
    return [name for name in names if name is not None]


def usable_index(input: Input, keys: Container[str | None]) -> Index | None:
    """The index with the most columns, all of them among the keys (by lower-case name)."""
    usable = [index for index in input.stream.indexes if all(name in keys for name in _lower(index.columns))]
    return max(usable, key=lambda index: len(index.columns), default=None)


def _declared(expression: exp.Expr, columns: Mapping[str, InputColumn]) -> str | None:
    """The lower-case name of an expression that is a column."""
    known = columns.get(expression.name) if isinstance(expression, exp.Column) else None
    return None if known is None else known.column.lower()


def _lower(names: Sequence[str]) -> list[str]:
    return [name.lower() for name in names]
