"""Where the stored rows of a kernel belong when the number of buckets changes (engine/rescale.py).

A row belongs in the bucket to which new rows of its key go.  Each kernel says of its relations how that is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class ByKey:
    """Rows go where new rows of the same key of an ``input`` go.

    ``names`` are the relation's names of that input's key columns, where they are others.  If rows are ``counted``,
    their ``$t`` is a row id of their bucket and says how long ago they came.
    """

    input: int
    names: Mapping[str, str] = field(default_factory=dict)
    counted: bool = False


@dataclass(frozen=True, slots=True)
class WithRow:
    """Notes about rows go where the row with their ``$rid`` goes, which is in one of the ``relations``."""

    relations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Everywhere:
    """Each bucket gets the row with the greatest ``$t``: all say the same, or a bound that may be too high."""


Home: TypeAlias = ByKey | WithRow | Everywhere
#: By relation.
Homes: TypeAlias = Mapping[str, Home]
