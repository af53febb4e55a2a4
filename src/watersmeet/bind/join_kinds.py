"""The kinds of join and their SQL keywords."""

from __future__ import annotations

from sqlglot import exp

from watersmeet.errors import UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.kernels.api import JoinKind

_KINDS = {
    ("", ""): JoinKind.INNER,
    ("", "INNER"): JoinKind.INNER,
    ("", "CROSS"): JoinKind.INNER,
    ("", "OUTER"): JoinKind.INNER,
    ("LEFT", ""): JoinKind.LEFT,
    ("LEFT", "OUTER"): JoinKind.LEFT,
    ("RIGHT", ""): JoinKind.RIGHT,
    ("RIGHT", "OUTER"): JoinKind.RIGHT,
    ("FULL", ""): JoinKind.FULL,
    ("FULL", "OUTER"): JoinKind.FULL,
    ("", "SEMI"): JoinKind.SEMI,
    ("LEFT", "SEMI"): JoinKind.SEMI,
    ("", "ANTI"): JoinKind.ANTI,
    ("LEFT", "ANTI"): JoinKind.ANTI,
}
#: Kinds that are handled as another kind with its sides swapped.
_MIRRORED = {("RIGHT", "SEMI"): JoinKind.SEMI, ("RIGHT", "ANTI"): JoinKind.ANTI}


def join_kind(join: exp.Join) -> tuple[JoinKind, bool]:
    """Return the kind of a join, and whether its sides must be swapped for it.

    Raises ``UnsupportedError`` for kinds that streams do not support.
    """
    method = join.method.upper()
    if method not in ("", "ASOF", "NATURAL"):
        raise UnsupportedError(f"{method} JOIN is not supported", position=position_of(join))
    written = (join.side.upper(), join.kind.upper())
    for kinds, mirrored in ((_KINDS, False), (_MIRRORED, True)):
        if (kind := kinds.get(written)) is not None:
            return kind, mirrored
    raise UnsupportedError(
        f"{' '.join(filter(None, written))} JOIN is not supported",
        hint="joins are INNER, LEFT, RIGHT, FULL, LEFT and RIGHT SEMI, LEFT and RIGHT ANTI",
        position=position_of(join),
    )
