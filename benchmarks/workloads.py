"""The workloads: each join in SQL, as a batch query in DuckDB and, where Spark supports it, with Spark's own operator.

All results have the columns l_id, r_id (NULL: no partner) and ``at``, a time that excludes rows that may not be final
yet.  Sums over the other rows must be equal for all engines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.streams import Data

#: Results of the last seconds are not compared.
MARGIN_MICROS = 40_000_000


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload.

    ``sql`` is the query, ``batch`` the same query in DuckDB over views of the same names.  ``spark`` is the same join
    of two or more streaming DataFrames.  ``flink`` is the kind of join in Flink's script.  Sides in ``primary_keys``
    change by key, those in ``versioned`` are versions, those in ``tables`` external tables.  With ``records``, the
    streams are Kafka topics whose records have that format, ``json`` or ``avro``.  ``cutoff`` excludes the last results
    from the comparison; with ``warm``, another query of the session runs before the measured one.  The first
    ``warm_up`` batches start workers, compile and fill the state; they do not count.  State has ``partitions`` buckets.
    """

    name: str
    title: str
    data: Data
    sql: str
    batch: str
    spark: Callable[..., Any] | None = None
    flink: str | None = None
    primary_keys: str = ""
    versioned: str = ""
    tables: tuple[str, ...] = ()
    records: str = ""
    cutoff: bool = True
    warm: bool = False
    warm_up: int = 3
    partitions: int = 2

    def of_rows(self, rows: int) -> Workload:
        """Return the workload with another number of rows per side, rounded down to a multiple of its batches.

        Raises ``ValueError`` if there are more batches than rows.
        """
        files = self.data.files
        if rows < files:
            raise ValueError(f"{self.name} has {files} batches, so it needs at least {files} rows per side, not {rows}")
        return replace(self, data=replace(self.data, rows=rows - rows % files))


def _pairs(kind: str, seconds: float, more: str = "") -> tuple[str, str]:
    """Return a windowed join in SQL, and in DuckDB's SQL."""
    millis = round(seconds * 1000)
    columns = "l.l_id, r.r_id, l.l_ts AS at, l.l_key, l.l_val, r.r_val" + more
    if kind == "FULL":
        columns = columns.replace("l.l_ts AS at", "coalesce(l.l_ts, r.r_ts) AS at")
    sql = (
        f"SELECT {columns} FROM l {kind} JOIN r ON l.l_key = r.r_key WITHIN INTERVAL '{millis}' MILLISECONDS EMIT FINAL"
    )
    near = f"r.r_ts BETWEEN l.l_ts - INTERVAL {millis} MILLISECONDS AND l.l_ts + INTERVAL {millis} MILLISECONDS"
    return sql, f"SELECT {columns} FROM l {kind} JOIN r ON l.l_key = r.r_key AND {near}"


def _lefts(kind: str) -> tuple[str, str]:
    columns = "l.l_id, CAST(NULL AS BIGINT) AS r_id, l.l_ts AS at, l.l_key, l.l_val"
    sql = f"SELECT {columns} FROM l LEFT {kind} JOIN r ON l.l_key = r.r_key WITHIN INTERVAL '5' SECONDS EMIT FINAL"
    near = "r.r_ts BETWEEN l.l_ts - INTERVAL 5 SECONDS AND l.l_ts + INTERVAL 5 SECONDS"
    return sql, f"SELECT {columns} FROM l {kind} JOIN r ON l.l_key = r.r_key AND {near}"


def _by_spark(how: str, seconds: float) -> Callable[..., Any]:
    def join(left: Any, right: Any) -> Any:
        from pyspark.sql import functions as F

        span = f"INTERVAL {round(seconds * 1000)} MILLISECONDS"
        condition = F.expr(f"l_key = r_key AND r_ts BETWEEN l_ts - {span} AND l_ts + {span}")
        joined = left.join(right, condition, how)
        if how == "leftsemi":
            return joined.withColumn("r_id", F.lit(None).cast("bigint")).withColumn("at", F.col("l_ts"))
        return joined.withColumn("at", F.coalesce("l_ts", "r_ts"))

    return join


def _chain_by_spark(sides: str) -> Callable[..., Any]:
    def join(left: Any, *others: Any) -> Any:
        from pyspark.sql import functions as F

        joined, times = left, ["l_ts"]
        for side, stream in zip(sides[1:], others, strict=True):
            near = (f"{side}_ts BETWEEN {time} - INTERVAL 5 SECONDS AND {time} + INTERVAL 5 SECONDS" for time in times)
            joined = joined.join(stream, F.expr(f"l_key = {side}_key AND {' AND '.join(near)}"))
            # a stream may have one event time, so this must not be one any more
            joined = joined.withColumn(f"{side}_at", F.expr(f"{side}_ts + INTERVAL 0 SECONDS")).drop(f"{side}_ts")
            times.append(f"{side}_at")
        ids = " + ".join(f"{side}_id" for side in sides[1:])
        return joined.withColumn("at", F.col("l_ts")).withColumn("r_id", F.expr(ids))

    return join


def _of_several(name: str, title: str, data: Data, seconds: float, kind: str = "") -> tuple[Workload, Workload]:
    """Return a join of streams with one key, as a chain of joins and in one operator.

    The second stream has a window of its own around the first, of ``seconds``.  The others are within 5 s of all before
    them, or of the first alone where some may be lacking.
    """
    sides = data.sides
    ids = [f"{side}.{side}_id" for side in sides[1:]]
    total = " + ".join(f"coalesce({id}, 0)" if kind else id for id in ids)
    batch = f"SELECT l.l_id, {total} AS r_id, l.l_ts AS at FROM l"
    for number, side in enumerate(sides[1:], 1):
        span = f"INTERVAL '{round(1000 * seconds) if number == 1 else 5000}' MILLISECONDS"
        near = (
            f"{side}.{side}_ts BETWEEN {other}.{other}_ts - {span} AND {other}.{other}_ts + {span}"
            for other in (sides[:1] if kind else sides[:number])
        )
        batch += f" {kind} JOIN {side} ON l.l_key = {side}.{side}_key AND {' AND '.join(near)}"

    def workload(way: str, how: str, multi_join: str) -> Workload:
        sql = f"{batch} EMIT FINAL SETTINGS multi_join = '{multi_join}'"
        has_peers = seconds == 5 and not kind
        spark = _chain_by_spark(sides) if has_peers else None
        flink = "intervals" if has_peers else None
        return Workload(f"{way}_{name}", f"{title}, {how}", data, sql, batch, spark, flink)

    return workload("chain", "one join after the other", "off"), workload("multi", "in one operator", "on")


def _without_windows(way: str, how: str, multi_join: str, flink: str) -> Workload:
    """Return a join of three streams in which all rows stay; a row has one partner in each other stream, on average."""
    data = Data(1_000_000, 10, keys=1_000_000, sides="lrm")
    joined = "l JOIN r ON l.l_key = r.r_key JOIN m ON l.l_key = m.m_key"
    batch = f"SELECT l.l_id, r.r_id + m.m_id AS r_id, l.l_ts AS at FROM {joined}"
    sql = f"{batch} EMIT CHANGELOG SETTINGS multi_join = '{multi_join}'"
    title = f"three streams without windows, {how}"
    return Workload(f"{way}_unwindowed", title, data, sql, batch, flink=flink, cutoff=False)


def _windowed(name: str, title: str, data: Data, kind: str, seconds: float, how: str | None, **more: Any) -> Workload:
    sql, batch = _pairs(kind, seconds)
    if not kind:
        batch = _by_pieces(batch, seconds)
    return Workload(name, title, data, sql, batch, _by_spark(how, seconds) if how else None, **more)


def _by_pieces(batch: str, seconds: float) -> str:
    """Return the SQL of an inner join that joins by pieces of time as well.

    By the key alone, DuckDB would compare all rows of a key with each other.
    """
    left = f"SELECT *, epoch_us(l_ts) // {round(seconds * 1_000_000)} AS piece FROM l"
    right = left.replace("l_ts", "r_ts").replace("FROM l", "FROM r")
    near = f"SELECT * REPLACE (unnest([piece - 1, piece, piece + 1]) AS piece) FROM ({right})"
    columns, joined = batch.split(" FROM l ")
    _, condition = joined.split(" ON ")
    return f"{columns} FROM ({left}) AS l JOIN ({near}) AS r ON l.piece = r.piece AND {condition}"


def _ordered(name: str, algorithm: str, keys: int = 100_000) -> Workload:
    """Return an inner join whose results come in the order of the left time."""
    sql, batch = _pairs("", 5)
    sql = sql.replace(" EMIT", " ORDER BY l.l_ts EMIT") + f" SETTINGS join_algorithm = '{algorithm}'"
    data = _LARGE if keys == _LARGE.keys else replace(_USUAL, keys=keys)
    partners = 10_000 / keys
    title = f"inner, ±5 s, {partners:g} partners a row, in order, {algorithm}"
    return Workload(name, title, data, sql, batch, _by_spark("inner", 5))


def _hot(name: str, skew: str) -> Workload:
    """Return a join with a hot key, whose rows are spread or not."""
    workload = _windowed(name, f"inner, ±100 ms, 10% on one key, {skew}", _HOT, "", 0.1, "inner")
    return replace(workload, sql=f"{workload.sql} SETTINGS skew = '{skew}'")


#: The JVM compiles during the first ten batches or so; workloads to compare with ``inner`` have as many batches.
_LARGE = Data(rows=8_000_000, files=20)
_USUAL = Data(rows=4_000_000, files=10)
_SEVERAL = replace(_USUAL, sides="lrm")
#: The first five batches do not count.
_RECORDS = Data(rows=6_000_000, files=15)
_RECORDS_WARM_UP = 5
#: With small batches the JVM compiles during the first fifty batches or so.
_SMALL = Data(rows=60_000, files=120, keys=1000)
#: The number of batches, and how many of them fill the state, are the same for any amount of state.
_STATE = Data(rows=28_000_000, files=70)
_FILLING = 62
#: Spark's own join of these takes minutes for a million rows.
_WIDE = Data(rows=640_000, files=8, more_columns=26)
_HOT = Data(rows=4_000_000, files=10, hot=0.1)
_ALL_WIDE = "".join(f", {side}.{side}_c{i}" for side in "lr" for i in range(_WIDE.more_columns))
_AS_OF = "SELECT l.l_id, r.r_id, l.l_ts AS at, l.l_key, l.l_val, r.r_val FROM l {0} ON l.l_key = r.r_key{1}"
_CHANGES = "SELECT l.l_id, r.r_id, l.l_ts AS at, l.l_val, r.r_val FROM l JOIN r ON l.l_key = r.r_key"
_TOTALS = (
    "SELECT count(*) AS l_id, sum(r.r_id) AS r_id, l.l_key % 1000 AS grp FROM l JOIN r ON l.l_key = r.r_key{0} "
    "GROUP BY l.l_key % 1000"
)
_LOOKUP = "SELECT l.l_id, r.r_id, l.l_ts AS at, l.l_val, r.r_val FROM l LEFT JOIN r{0} ON l.l_key = r.r_key"


def _of_state(millions: int) -> Workload:
    """Return a join with that many million rows of state; keys grow with it, so each row has as many matches."""
    seconds = millions * 500  # both sides have a thousand rows per second
    data = replace(_STATE, keys=millions * 1_000_000)
    return _windowed(
        f"state_{millions}m", f"inner, {millions} million rows of state", data, "", seconds, None, warm_up=_FILLING
    )


def _over_kafka(records: str, shown: str) -> Workload:
    """Return a join of topics whose records have that format."""
    title = f"inner, ±5 s, Kafka topics of {shown} records"
    more: dict[str, Any] = {"flink": "interval", "records": records, "warm_up": _RECORDS_WARM_UP}
    return _windowed(f"kafka_{records}", title, _RECORDS, "", 5, "inner", **more)


def _wide() -> Workload:
    sql, batch = _pairs("", 5, _ALL_WIDE)
    return Workload("wide", "inner, 30 columns a side", _WIDE, sql, batch, _by_spark("inner", 5))


def _near(side: str) -> str:
    return f"{side}.{side}_ts BETWEEN l.l_ts - INTERVAL 5 SECONDS AND l.l_ts + INTERVAL 5 SECONDS"


WORKLOADS: dict[str, Workload] = {
    each.name: each
    for each in (
        _windowed("inner", "inner, ±5 s", _LARGE, "", 5, "inner", flink="interval"),
        _windowed("left", "left, ±5 s", _LARGE, "LEFT", 5, "left"),
        _windowed("full", "full, ±5 s", _LARGE, "FULL", 5, "full"),
        Workload("semi", "semi, ±5 s", _LARGE, *_lefts("SEMI"), _by_spark("leftsemi", 5)),
        Workload("anti", "anti, ±5 s", _LARGE, *_lefts("ANTI")),
        _windowed("uuid", "inner, keys of 36 characters", replace(_LARGE, text_keys=True), "", 5, "inner"),
        _wide(),
        _ordered("ordered", "sliding"),
        _ordered("ordered_symmetric", "symmetric"),
        _ordered("ordered_many", "sliding", keys=2_500),
        _ordered("ordered_many_symmetric", "symmetric", keys=2_500),
        _hot("skew", "spread"),
        _hot("skew_keep", "keep"),
        _windowed("window_60", "inner, ±60 s", _USUAL, "", 60, "inner"),
        _windowed("partitions_8", "inner, ±60 s, 8 partitions on 2 workers", _USUAL, "", 60, "inner", partitions=8),
        _windowed("window_300", "inner, ±300 s", _USUAL, "", 300, "inner"),
        *(_of_state(millions) for millions in (1, 5, 10, 50)),
        *_of_several(
            "3",
            "three streams, ±5 s, four partners in the second, one row in 25 has one in the third",
            replace(_SEVERAL, rows=2_000_000, keys=2_500, sparse="m"),
            5,
        ),
        *_of_several(
            "5",
            "five streams, ±5 s, two partners in each other one",
            replace(_SEVERAL, rows=500_000, keys=5_000, sides="lrmno"),
            5,
        ),
        *_of_several("3_few", "three streams, ±5 s, few intermediate results", _SEVERAL, 5),
        *_of_several("5_few", "five streams, ±5 s, few intermediate results", replace(_SEVERAL, sides="lrmno"), 5),
        *_of_several("rare", "three streams, ±100 ms between two of them, ±5 s with the third", _SEVERAL, 0.1),
        _without_windows("chain", "one join after the other", "off", "regular"),
        _without_windows("multi", "in one operator", "on", "multi_join"),
        *_of_several("left", "two left joins, ±5 s", _SEVERAL, 5, "LEFT"),
        Workload(
            "temporal",
            "left, FOR SYSTEM_TIME AS OF",
            _LARGE,
            _AS_OF.format("LEFT JOIN r FOR SYSTEM_TIME AS OF l.l_ts", " EMIT FINAL"),
            _AS_OF.format("ASOF LEFT JOIN r", " AND l.l_ts >= r.r_ts"),
            flink="temporal",
            versioned="r",
        ),
        Workload(
            "asof",
            "left, ASOF within 60 s",
            _LARGE,
            _AS_OF.format(
                "LEFT ASOF JOIN r MATCH_CONDITION (l.l_ts >= r.r_ts AND l.l_ts - r.r_ts <= INTERVAL '60' SECONDS)", ""
            ),
            'SELECT l_id, CASE WHEN "at" - r_ts <= INTERVAL 60 SECONDS THEN r_id END AS r_id, "at" FROM ('
            + _AS_OF.format("ASOF LEFT JOIN r", " AND l.l_ts >= r.r_ts").replace(" AS at", " AS at, r.r_ts")
            + ")",
        ),
        Workload(
            "changelog",
            "inner, both sides updated by key",
            _USUAL,
            f"{_CHANGES} EMIT CHANGELOG",
            _CHANGES,
            flink="changelog",
            primary_keys="lr",
            cutoff=False,
        ),
        Workload(
            "aggregate",
            "count and sum over an inner join, ±5 s",
            _USUAL,
            _TOTALS.format(" WITHIN INTERVAL '5' SECONDS") + " EMIT CHANGELOG",
            _TOTALS.format(f" AND {_near('r')}"),
            cutoff=False,
        ),
        Workload(
            "lookup",
            "left, rows of a Parquet table",
            _USUAL,
            _LOOKUP.format(" FOR SYSTEM_TIME AS OF PROCTIME()"),
            _LOOKUP.format(""),
            tables=("r",),
            cutoff=False,
        ),
        _windowed("small", "inner, ±5 s, batches of 1,000 rows", _SMALL, "", 5, "inner", cutoff=False, warm_up=60),
        _windowed(
            "first_seed",
            "inner, ±5 min, 100,000 rows a side at once",
            Data(100_000, 1, 1000, gap=36_000),
            "",
            300,
            "inner",
            cutoff=False,
            warm=True,
        ),
        _over_kafka("json", "JSON"),
        _over_kafka("avro", "Avro"),
        Workload(
            "kafka_changelog",
            "inner, both sides updated by key, Kafka topics of JSON records",
            _RECORDS,
            f"{_CHANGES} EMIT CHANGELOG",
            _CHANGES,
            flink="changelog",
            primary_keys="lr",
            records="json",
            cutoff=False,
            warm_up=_RECORDS_WARM_UP,
        ),
    )
}
