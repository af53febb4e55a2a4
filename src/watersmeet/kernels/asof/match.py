"""The match of a join as of a time: which right row is a left row's partner, and how right rows follow each other."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum

from watersmeet.columns import TIME
from watersmeet.kernels.api import Side, quote, shift
from watersmeet.kernels.match import Key, SideColumns


class Direction(Enum):
    """Where a left row's partner lies in time.

    BACKWARD: at or before the left row.  FORWARD: at or after it.  NEAREST: the nearer of both, at equal distance the
    earlier.  CURRENT: the newest row known, whatever its time.
    """

    BACKWARD = "backward"
    FORWARD = "forward"
    NEAREST = "nearest"
    CURRENT = "current"


@dataclass(frozen=True, slots=True)
class Versions:
    """How right rows follow each other.

    Rows with equal ``by`` columns are versions of one *entity*, and one version holds at a time.  Of versions of equal
    time, the last by ``sequence`` counts; without one (``""``), that with the greatest values.  If rows can be
    retracted, ``weight`` is the column with +1 and -1.  The effect of a -1 follows from the rows that share its
    ``identity`` and time, in the order of ``sequence``:

    retracts       if ``takes_away`` and a +1 precedes it
    ends validity  otherwise, if ``ends``: nothing holds from its time on
    is ignored     otherwise: it retracts a row that never was

    ``index`` holds columns of the join's key, by which entities are looked up if the key does not name one.
    """

    by: tuple[str, ...]
    sequence: str
    identity: tuple[str, ...] = ()
    weight: str | None = None
    takes_away: bool = False
    ends: bool = False
    index: tuple[str, ...] = field(default=(), repr=False)  # changes no result: state is compatible with any

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a right row that decide which version holds, beside its time."""
        weight = () if self.weight is None else (self.weight,)
        sequence = (self.sequence,) if self.sequence else ()
        return tuple(dict.fromkeys((*self.by, *self.identity, *sequence, *weight)))


@dataclass(frozen=True, slots=True)
class Asked:
    """The time as of which a left row is joined, where that is not its event time.

    ``time`` is DuckDB SQL over a left row: internal time, a HUGEINT.  The row's event time becomes the column
    ``event_time`` (None: it has one already).  If the time is ``fixed``, all rows ask for the same.  ``too_old`` names
    the counter of rows that ask for an older version than is kept.
    """

    time: str
    event_time: str | None
    fixed: bool
    too_old: str = "too_old"


@dataclass(frozen=True, slots=True)
class VersionTimes:
    """Which versions are asked for, and how long they may change, F being the operator's frontier.

    As a rule a left row asks for the version of its event time, and no version below F changes any more.

    ``asked``      left rows ask for versions of other times
    ``kept``       left rows may ask for times from F - kept on (None: for any time)
    ``corrected``  right rows from F - corrected on are taken, and correct results (None: right rows of any time)
    ``in_order``   no right row comes below the newest one, so its own frontier says what is final
    """

    asked: Asked | None = None
    kept: int | None = 0
    corrected: int | None = 0
    in_order: bool = False

    def right_final_before(self, frontier: int, right: int) -> int:
        """Return the time below which no right row comes any more, by the frontiers of the operator and the input."""
        return max(frontier, right) if self.in_order else self.right_from(frontier)

    def right_from(self, frontier: int) -> int:
        """Return the least time of a right row that may still come."""
        return shift(frontier, None if self.corrected is None else -self.corrected)

    def left_asks_from(self, frontier: int) -> int:
        """Return the least time that a left row may still ask for; older versions may be gone."""
        return shift(frontier, None if self.kept is None else -self.kept)


BY_EVENT_TIME = VersionTimes()


@dataclass(frozen=True, slots=True)
class AsofMatch:
    """The join; input 0 is the left stream, input 1 the right one.

    ``residual`` is DuckDB SQL over ``l`` and ``r``, tested on the row that holds.  ``tolerance`` is the greatest
    distance of partners, in units of ``$t``.  With ``outer``, left rows without a partner are emitted padded.  Results
    have the columns of ``left.output``, then of ``right.output``.
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
    def times(self) -> VersionTimes:
        """Which versions are asked for, and how long they may change."""
        return BY_EVENT_TIME

    @property
    def key_is_complete(self) -> bool:
        """Whether the keys name one entity; otherwise a left row may match versions of several."""
        return set(self.versions.by) <= {key.right for key in self.keys}

    @property
    def right_columns(self) -> tuple[str, ...]:
        """The columns of a right row in the state, its time first."""
        return tuple(dict.fromkeys((TIME, *self.right.stored, *self.versions.columns)))

    @property
    def last_first(self) -> str:
        """Return the order of versions of equal time, as SQL: the one that counts comes first.

        Results of a query have no position in a source: their values decide, so that no order of arrival does.
        """
        versions = self.versions
        values = [name for name in self.right_columns if name not in (TIME, *versions.by)]
        values.sort(key=lambda name: (":$" in name, name))  # what is computed of other columns decides nothing
        names = [versions.sequence] if versions.sequence else values or [TIME]
        return ", ".join(f"{quote(name)} DESC NULLS LAST" for name in names)

    def same_key(self, *, by: bool = False) -> list[str]:
        """Return the key's equalities as SQL over ``l`` and ``r``; with ``by``, only those that name the entity."""
        return [
            f"l.{quote(key.left)} {'IS NOT DISTINCT FROM' if key.null_safe else '='} r.{quote(key.right)}"
            for key in self.keys
            if not by or key.right in self.versions.by
        ]

    def output(self, side: Side, where: str | None = None) -> list[str]:
        """Return SQL for a side's result columns; with ``where``, NULL unless that condition holds."""
        columns = self.left if side is Side.LEFT else self.right
        found = []
        for name in columns.output:
            value = f"{side.alias}.{quote(TIME if name == columns.time else name)}"
            found.append(f"{value if where is None else f'CASE WHEN {where} THEN {value} END'} AS {quote(name)}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedMatch(AsofMatch):
    """A match with other times than the rule (a class of its own: checkpoints tell the two apart)."""

    times: VersionTimes


def with_times(match: AsofMatch, times: VersionTimes) -> AsofMatch:
    """Return a match with these times."""
    if times == BY_EVENT_TIME:
        return match
    return TimedMatch(**{each.name: getattr(match, each.name) for each in fields(match)}, times=times)
