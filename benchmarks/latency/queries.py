"""The queries whose latency is measured, in the SQL of Watersmeet and of Flink.

Streams ``l`` and ``r`` have columns s_id, s_key and s_ts, all BIGINT; s_ts is the event time in milliseconds.  Results
name the records that they were made of by s_id.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

PARTITIONS = 2
WINDOW_MS = 5_000
_SECOND_MS = 1_000
_MOST_GROUPS = 1_000


class Kind(Enum):
    """What the results of a query are, which says how they are checked."""

    PAIRS = "pairs"  # of two rows in a window, and perhaps padded rows
    VERSIONS = "versions"  # each left row with the version of its time
    CHANGES = "changes"  # the newest pair of each key
    GROUPS = "groups"  # the newest row of each key and how many rows it has
    ROWS = "rows"  # the left rows

    @property
    def is_upsert(self) -> bool:
        """Whether results replace each other by key."""
        return self in (Kind.CHANGES, Kind.GROUPS)


@dataclass(frozen=True, slots=True)
class Query:
    """One query.

    ``sql`` and ``flink`` are its SELECT.  Sides in ``keyed`` have a primary key.  Watermarks have a delay of
    ``delay_ms``.  With ``pads``, left rows without a partner are padded.  A key comes again after ``seconds_a_key``
    on average.  Records go on for ``tail_ms`` after the measured ones, so that the windows of these close.
    """

    name: str
    title: str
    kind: Kind
    sql: str
    flink: str
    sides: str = "lr"
    keyed: str = ""
    delay_ms: int = _SECOND_MS
    pads: bool = False
    seconds_a_key: int = 10
    most_keys: int | None = None
    tail_ms: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the results."""
        match self.kind:
            case Kind.CHANGES:
                return ("l_key", "l_id", "r_id")
            case Kind.GROUPS:
                return ("l_key", "l_id", "n")
            case Kind.ROWS:
                return ("l_id",)
            case _:
                return ("l_id", "r_id")

    def keys(self, rate: int) -> int:
        """Return the number of keys at that rate, a multiple of the number of partitions."""
        wanted = rate * self.seconds_a_key
        keys = wanted if self.most_keys is None else min(wanted, self.most_keys)
        return keys - keys % PARTITIONS


def _windowed(name: str, kind: str, pads: bool) -> Query:
    sql = f"SELECT l.l_id, r.r_id FROM l {kind}JOIN r ON l.l_key = r.r_key WITHIN INTERVAL '5' SECONDS EMIT FINAL"
    near = "r_time BETWEEN l_time - INTERVAL '5' SECOND AND l_time + INTERVAL '5' SECOND"
    flink = f"SELECT l_id, r_id FROM l {kind}JOIN r ON l_key = r_key AND {near}"
    # a window ends after 5 s, its watermark comes 1 s later, and one more second brings records to all partitions
    tail_ms = WINDOW_MS + 2 * _SECOND_MS if pads else 0
    return Query(name, f"{name}, ±5 s", Kind.PAIRS, sql, flink, pads=pads, tail_ms=tail_ms)


def _nested(name: str, title: str, where: str) -> Query:
    return Query(
        name,
        title,
        Kind.GROUPS,
        "SELECT l_key, max(m) AS l_id, CAST(sum(c) AS BIGINT) AS n FROM (SELECT l_key, l_id % 4 AS part,"
        f" max(l_id) AS m, count(*) AS c FROM l GROUP BY l_key, l_id % 4){where} GROUP BY l_key EMIT CHANGELOG",
        "SELECT l_key, MAX(m) AS l_id, SUM(c) AS n FROM (SELECT l_key, MOD(l_id, 4) AS part, MAX(l_id) AS m,"
        " COUNT(*) AS c FROM l GROUP BY l_key, MOD(l_id, 4)) AS parts GROUP BY l_key",
        sides="l",
        most_keys=_MOST_GROUPS,
    )


QUERIES: dict[str, Query] = {
    each.name: each
    for each in (
        _windowed("inner", "", pads=False),
        _windowed("left", "LEFT ", pads=True),
        Query(
            "temporal",
            "left, FOR SYSTEM_TIME AS OF",
            Kind.VERSIONS,
            "SELECT l.l_id, r.r_id FROM l LEFT JOIN r FOR SYSTEM_TIME AS OF l.l_ts ON l.l_key = r.r_key EMIT FINAL",
            "SELECT l_id, r_id FROM l LEFT JOIN r_newest FOR SYSTEM_TIME AS OF l_time ON l_key = r_key",
            keyed="r",
            delay_ms=0,
            seconds_a_key=1,
            tail_ms=_SECOND_MS,
        ),
        Query(
            "changing",
            "inner, both sides updated by key",
            Kind.CHANGES,
            "SELECT l.l_key, l.l_id, r.r_id FROM l JOIN r ON l.l_key = r.r_key EMIT CHANGELOG",
            "SELECT l_key, l_id, r_id FROM l_newest JOIN r_newest ON l_key = r_key",
            keyed="lr",
        ),
        Query(
            "aggregate",
            "count and max by group",
            Kind.GROUPS,
            "SELECT l_key, max(l_id) AS l_id, count(*) AS n FROM l GROUP BY l_key EMIT CHANGELOG",
            "SELECT l_key, MAX(l_id) AS l_id, COUNT(*) AS n FROM l GROUP BY l_key",
            sides="l",
            most_keys=_MOST_GROUPS,
        ),
        _nested("nested", "count and max by group, over those of its parts", ""),
        # of the parts only Spark can tell, one by one, that all of them pass
        _nested("nested_by_spark", "the same, with a function between that workers lack", " WHERE bit_count(c) > 0"),
        # what an engine takes without doing anything
        Query("passed", "rows passed on", Kind.ROWS, "SELECT l_id FROM l", "SELECT l_id FROM l", sides="l"),
    )
}
