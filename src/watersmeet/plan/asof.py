"""Joins as of a time: how right rows follow each other, what routes rows, and which kernel joins them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from sqlglot import exp

from watersmeet.catalog.streams import Index, StreamMode
from watersmeet.columns import TP_DELTA
from watersmeet.kernels.api import EmitMode
from watersmeet.kernels.asof.at_once import AsofAtOnce
from watersmeet.kernels.asof.changelog import AsofChangelog
from watersmeet.kernels.asof.final import AsofJoin
from watersmeet.kernels.asof.match import AsofMatch, Versions
from watersmeet.kernels.match import Key
from watersmeet.plan.emit import join_at_once
from watersmeet.plan.logical.query import AsofClause, Input, JoinNode, KeyPair, LogicalQuery, PhysicalColumn

AsofKernel = AsofJoin | AsofAtOnce | AsofChangelog


def routing_keys(join: JoinNode, inputs: Sequence[Input], columns: Mapping[str, PhysicalColumn]) -> list[KeyPair]:
    """The keys by whose hash rows find their bucket.

    All versions of a row of a table must meet in one bucket, whatever else changes: of a table with a primary key only
    that counts.
    """
    pairs = list(join.analysis.keys)
    if join.asof is None or not _is_keyed(join.asof, inputs[join.asof.right]):
        return pairs
    key = inputs[join.asof.right].stream.primary_key
    return [pair for pair in pairs if _declared(pair.right, columns) in _lower(key)]


def versions_of(
    asof: AsofClause,
    input: Input,
    pairs: Sequence[KeyPair],
    keys: Sequence[Key],
    sequence: str,
    columns: Mapping[str, PhysicalColumn],
) -> Versions:
    """How the rows of the right input follow each other; ``keys`` are the columns that travel for ``pairs``."""
    travelling = {_declared(pair.right, columns): key.right for pair, key in zip(pairs, keys, strict=True)}
    declared = {column.name.lower(): column.name for column in input.stream.columns}
    primary = tuple(travelling.get(name, input.physical(declared[name])) for name in _lower(input.stream.primary_key))
    by_key = tuple(dict.fromkeys(key.right for key in keys))
    if not input.stream.changes:
        return Versions(by_key, sequence)
    index = usable_index(input, travelling)
    return Versions(
        by=primary if asof.of_table else by_key,
        sequence=sequence,
        # rows of an ASOF join are routed by its key: a -1 must have that of the row which it takes away
        identity=primary if asof.of_table else tuple(dict.fromkeys((*by_key, *primary))),
        weight=input.physical(TP_DELTA),
        takes_away=input.stream.mode is StreamMode.CHANGELOG,
        ends=asof.of_table,
        index=tuple(travelling[name] for name in _lower(index.columns)) if asof.of_table and index else (),
    )


def declared_keys(join: JoinNode, columns: Mapping[str, PhysicalColumn]) -> list[str]:
    """The columns of the right side that are keys as they are, by lower-case name."""
    names = (_declared(pair.right, columns) for pair in join.analysis.keys)
    return [name for name in names if name is not None]


def usable_index(input: Input, keys: Container[str | None]) -> Index | None:
    """The index with most columns, of which the keys (by lower-case name) have all."""
    usable = [index for index in input.stream.indexes if all(name in keys for name in _lower(index.columns))]
    return max(usable, key=lambda index: len(index.columns), default=None)


def kernel_of(query: LogicalQuery, join: JoinNode, match: AsofMatch, *, left_changes: bool) -> AsofKernel:
    """The kernel of a join as of a time."""
    assert join.asof is not None
    if join_at_once(query, join.asof) and not left_changes:
        return AsofAtOnce(match, f"behind.{query.inputs[join.asof.right].alias}")
    if query.emit is EmitMode.CHANGELOG:
        return AsofChangelog(match, left_changes, gives_ids=left_changes or join is not query.root)
    return AsofJoin(match)


def _is_keyed(asof: AsofClause, input: Input) -> bool:
    return asof.of_table and input.stream.changes


def _declared(expression: exp.Expr, columns: Mapping[str, PhysicalColumn]) -> str | None:
    """The lower-case name of the column that an expression is."""
    known = columns.get(expression.name) if isinstance(expression, exp.Column) else None
    return None if known is None else known.column.lower()


def _lower(names: Sequence[str]) -> list[str]:
    return [name.lower() for name in names]
