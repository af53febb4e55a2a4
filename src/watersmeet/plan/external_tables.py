"""External tables in lookup joins: what they can be asked for, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from watersmeet.errors import BindError, UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.plan.logical.key_types import type_of
from watersmeet.plan.logical.tree import Input, InputColumn, Join, KeyPair, Leaf, changing

_T = exp.DataType.Type
_TEXT = (_T.TEXT, _T.VARCHAR, _T.CHAR)
_WHOLE = (*exp.DataType.INTEGER_TYPES, _T.DECIMAL)


def table_of(join: Join) -> Input | None:
    """The external table that a join looks up in; None for every other join."""
    if join.asof is None or not isinstance(join.right, Leaf) or not join.right.input.stream.outside:
        return None
    return join.right.input


def can_be_asked(pair: KeyPair, condition: exp.Expr, columns: Mapping[str, InputColumn]) -> bool:
    """Whether the external table can be asked for rows with a key: the key is a plain column of it, and never NULL.

    Raises ``BindError`` where the column would have to be cast first.
    """
    if not isinstance(pair.right, exp.Column) or pair.null_safe:
        return False
    column = type_of(pair.right, columns)
    both = (column, pair.type)
    alike = column == pair.type or any(all(kind.is_type(*of) for kind in both) for of in (_TEXT, _WHOLE))
    if not alike:
        left, right = plain_sql(pair.left), plain_sql(pair.right)
        raise BindError(
            f"{right} is {column.sql('spark')}, but {left} makes it be compared as {pair.type.sql('spark')}:"
            " an external table can only be asked for its own columns, uncast",
            hint=f"write CAST({left} AS {column.sql('spark')}) = {right}",
            position=position_of(condition),
        )
    return True


def require_key(join: Join, table: Input) -> None:
    """Raise for a lookup without an equality that the table can be asked for.

    ``UnsupportedError`` where there is one, but its other side is not computed before the rows reach their bucket;
    ``BindError`` where there is none.
    """
    if join.condition.keys:
        return
    own = table.physical("")
    for condition in (each for each in join.condition.residual if isinstance(each, exp.EQ)):
        sides = (condition.this, condition.expression)
        for column, other in (sides, sides[::-1]):
            is_own = isinstance(column, exp.Column) and column.name.startswith(own)
            if is_own and any(not each.name.startswith(own) for each in other.find_all(exp.Column)):
                raise UnsupportedError(
                    f"{plain_sql(other)} cannot choose the rows of {table.stream.name}: it reads several streams, or "
                    "one whose rows an outer join may pad",
                    hint="compute it in a query of its own (CREATE STREAM … AS), and look rows up for its results",
                    position=position_of(condition) or join.position,
                )
    raise BindError(
        f"the lookup in {table.stream.name} needs a key: an equality of one of its columns with the left side",
        detail=f"columns: {', '.join(column.name for column in table.stream.columns)}",
        hint=f"add ON … = {table.alias}.{table.stream.columns[0].name}; all other conditions may stand beside it",
        position=join.position,
    )


_OWN_QUERY = "look it up in a query of its own (CREATE STREAM … AS), and join its result"


def looked_up_key(expression: exp.Expr) -> UnsupportedError:
    """The error for a join of streams by a looked-up column: only columns of sources can choose a bucket."""
    return UnsupportedError(
        f"{plain_sql(expression)} is looked up in an external table: it cannot be the key of a join of streams",
        hint=_OWN_QUERY,
        position=position_of(expression),
    )


def computed_key(expression: exp.Expr) -> UnsupportedError:
    """The error for a lookup by an expression over a looked-up column."""
    return UnsupportedError(
        f"{plain_sql(expression)} is looked up in an external table: as the key of another lookup it must be a plain"
        " column, of the type it is compared with",
        hint=_OWN_QUERY,
        position=position_of(expression),
    )


def left_changes(join: Join, table: Input) -> UnsupportedError:
    """The error for a lookup over a changelog: nobody remembers what a retracted row found."""
    corrected = changing(join.left)
    by = f": the rows of {corrected[0].stream.name} change" if corrected else ""
    return UnsupportedError(
        f"the left side of the lookup in {table.stream.name} is a changelog{by}; a fresh lookup cannot tell what was"
        " emitted for a row that is retracted",
        hint="feed the table's changes into a stream with a PRIMARY KEY, and join that"
        if corrected
        else "use EMIT FINAL, or put the lookup before the join that retracts rows",
        position=join.position,
    )
