"""What a join as of a time asks for: which right row a left row is to meet, and how right rows follow each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from watersmeet.columns import TIME
from watersmeet.kernels.api import Side, quote
from watersmeet.kernels.match import Key, SideColumns


class Direction(Enum):
    """On which side of the left row's time its partner is looked for; CURRENT: the newest there is, whatever its time.

    NEAREST takes the nearer of both sides, at equal distance the earlier.
    """

    BACKWARD = "backward"
    FORWARD = "forward"
    NEAREST = "nearest"
    CURRENT = "current"


@dataclass(frozen=True, slots=True)
class Versions:
    """How right rows follow each other.

    Rows with equal ``by`` are versions of one thing, of which one holds at a time; of one time the last in the order
    of ``sequence``.  Where rows can be taken away, ``weight`` is the column with +1 and -1, and what a row with -1
    says is told by the rows that share its ``identity`` and time, in the order of ``sequence``:

    it takes away     where one with +1 came before it, and ``takes_away``
    it ends validity  else, where ``ends``: nothing holds from its time on
    nothing           else: it takes away a row that was never there

    By ``index``, columns of the join's key, things are sought where the key does not name one.
    """

    by: tuple[str, ...]
    sequence: str
    identity: tuple[str, ...] = ()
    weight: str | None = None
    takes_away: bool = False
    ends: bool = False
    index: tuple[str, ...] = field(default=(), repr=False)  # it changes no result, so state fits with any

    @property
    def columns(self) -> tuple[str, ...]:
        """What must be known of a right row beside its time."""
        weight = () if self.weight is None else (self.weight,)
        return tuple(dict.fromkeys((*self.by, *self.identity, self.sequence, *weight)))


@dataclass(frozen=True, slots=True)
class AsofMatch:
    """The join; input 0 is the left stream, input 1 the right one.

    ``residual`` is DuckDB SQL over ``l`` and ``r``, tested on the row that holds; ``tolerance`` the greatest distance,
    in units of the axis.  With ``outer`` left rows without a partner come out padded.  Results have the columns of
    ``left.output`` and then of ``right.output``.
    """

    left: SideColumns
    right: SideColumns
    keys: tuple[Key, ...]
    versions: Versions
    direction: Direction
    strict: bool = False
    tolerance: int | None = None
    outer: bool = False
    residual: str | None = None

    @property
    def meets_one(self) -> bool:
        """The keys name one thing of which one version holds; else a left row may meet several."""
        return set(self.versions.by) <= {key.right for key in self.keys}

    @property
    def right_columns(self) -> tuple[str, ...]:
        """What the state must hold of a right row, the time first."""
        return tuple(dict.fromkeys((TIME, *self.right.stored, *self.versions.columns)))

    def same_key(self, *, by: bool = False) -> list[str]:
        """The equalities of the key as SQL over ``l`` and ``r``; with ``by`` only those that name the thing."""
        return [
            f"l.{quote(key.left)} {'IS NOT DISTINCT FROM' if key.null_safe else '='} r.{quote(key.right)}"
            for key in self.keys
            if not by or key.right in self.versions.by
        ]

    def output(self, side: Side, where: str | None = None) -> list[str]:
        """SQL of a side's result columns; NULL but ``where`` a condition holds."""
        columns = self.left if side is Side.LEFT else self.right
        found = []
        for name in columns.output:
            value = f"{side.alias}.{quote(TIME if name == columns.time else name)}"
            found.append(f"{value if where is None else f'CASE WHEN {where} THEN {value} END'} AS {quote(name)}")
        return found
