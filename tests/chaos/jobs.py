"""The queries that faults befall: what each reads and writes, and what DuckDB is asked instead."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.chaos.load import FORMATS
from tests.support.object_store import BUCKET

#: A row is late if it comes ten seconds out of order; the load's come nine at most.
_COLUMNS = "(id BIGINT, v BIGINT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '10' SECONDS)"
#: Of the table: a delete is dated by its version, and so are all changes.
_DATED = "(id BIGINT, v BIGINT, ts BIGINT, WATERMARK FOR _tp_time AS _tp_time)"
#: Those that replace each other.
CHANGING_STREAMS = "rsd"
_WINDOW = "WITHIN INTERVAL '30' SECONDS"
_NEAR = "o.id = p.id AND abs(p.ts - o.ts) <= 30"
#: Often enough, and not so often that the listing of files takes all of the machine.
_SETTINGS = "buckets = 2, trigger = '0.5 seconds', sink_retry = '3 minutes', source_retry = '3 minutes'"


@dataclass(frozen=True, slots=True)
class Job:
    """A query; ``sink`` names the columns and the rest of the definition of its target.

    ``follows``: what it reads are tables of PostgreSQL, not files.
    """

    name: str
    sql: str
    answer: str
    reads: str
    sink: str
    settings: str = ""
    follows: bool = False

    @property
    def target(self) -> str:
        """The stream that it writes."""
        return f"{self.name}_out"

    @property
    def insert(self) -> str:
        """The whole statement."""
        return f"INSERT INTO {self.target} {self.sql} SETTINGS {_SETTINGS}{self.settings}"


_LEFT = f"SELECT o.id, o.v, p.v AS w FROM o LEFT JOIN p ON o.id = p.id {_WINDOW} EMIT FINAL"
_LEFT_ANSWER = f"SELECT o.id, o.v, p.v FROM o LEFT JOIN p ON {_NEAR}"
_OUTER = f"SELECT o.id, o.v, p.id AS pid, p.v AS w FROM o FULL JOIN p ON o.id = p.id {_WINDOW} EMIT FINAL"
_OUTER_ANSWER = f"SELECT o.id, o.v, p.id, p.v FROM o FULL JOIN p ON {_NEAR}"
_DELTA = "(id BIGINT, v BIGINT, pid BIGINT, w BIGINT) WITH (connector = 'delta', path = '{store}/outer')"
_JDBC = (
    "WITH (connector = 'jdbc', url = '{url}', table = '{table}', user = 'postgres', password = '${{file:{secret}}}')"
)
_NEWEST = "(FROM {0} QUALIFY row_number() OVER (PARTITION BY id ORDER BY ts DESC) = 1) {0}"

#: With a limit that it never meets: such a join also notes the size of each bucket.
LEFT = Job(
    "left",
    _LEFT,
    _LEFT_ANSWER,
    "op",
    "WITH (connector = 'files', path = '{out}/left', format = 'json')",
    ", eviction = 'oldest', join_max_buffered_bytes = 100000000",
)
OUTER = Job("outer", _OUTER, _OUTER_ANSWER, "op", _DELTA)
CHANGING = Job(
    "changing",
    "SELECT r.id, r.v, s.v AS w FROM r LEFT JOIN s ON r.id = s.id",
    f"SELECT r.id, r.v, s.v FROM {_NEWEST.format('r')} LEFT JOIN {_NEWEST.format('s')} ON r.id = s.id",
    "rs",
    f"(id BIGINT, v BIGINT, w BIGINT) PRIMARY KEY (id) {_JDBC}",
)
#: The changes of a Delta table, into another one.
LAKE = Job(
    "lake",
    "SELECT d.id, d.v, s.v AS w FROM d LEFT JOIN s ON d.id = s.id",
    f"SELECT d.id, d.v, s.v FROM {_NEWEST.format('d')} LEFT JOIN {_NEWEST.format('s')} ON d.id = s.id "
    "WHERE d.v IS NOT NULL",
    "ds",
    "(id BIGINT, v BIGINT, w BIGINT) PRIMARY KEY (id) WITH (connector = 'delta', path = '{store}/lake')",
)
#: The same of tables that hold the newest rows, by their changes.
FOLLOWED = replace(CHANGING, name="followed", follows=True)
AGGREGATE = Job(
    "aggregate",
    f"SELECT o.id, count(*) AS v, sum(p.v) AS w FROM o JOIN p ON o.id = p.id {_WINDOW} GROUP BY o.id",
    f"SELECT o.id, count(*), sum(p.v) FROM o JOIN p ON {_NEAR} GROUP BY o.id",
    "op",
    f"(id BIGINT, v BIGINT, w BIGINT) PRIMARY KEY (id) {_JDBC}",
)
CHANGELOG = Job(
    "changelog",
    AGGREGATE.sql + " EMIT CHANGELOG",
    AGGREGATE.answer,
    "op",
    "WITH (connector = 'files', path = '{out}/changelog', format = 'json', changelog = 'true')",
)
TOPIC = Job(
    "topic",
    _LEFT,
    _LEFT_ANSWER,
    "op",
    "(id BIGINT, v BIGINT, w BIGINT) WITH (connector = 'kafka', brokers = '{broker}', topic = '{topics}-out', "
    "delivery = 'exactly_once')",
)
#: A name of WITH that is read twice, windows that end, and a join of their results.
WHOLE = Job(
    "whole",
    "WITH t AS (SELECT id, window_end AS e, count(*) AS n FROM TUMBLE(o, ts, INTERVAL '20' SECONDS) GROUP BY 1, 2), "
    "m AS (SELECT e, max(n) AS most FROM t GROUP BY e) "
    "SELECT t.id, t.n AS v, m.most AS w FROM t JOIN m ON t.e = m.e EMIT FINAL",
    "WITH t AS (SELECT id, ts // 20 AS e, count(*) AS n FROM o GROUP BY 1, 2) "
    "SELECT id, n, max(n) OVER (PARTITION BY e) FROM t",
    "o",
    "WITH (connector = 'files', path = '{out}/whole', format = 'json')",
)
#: Which jobs may run side by side in one Spark, by the name of the rig.
RIGS: dict[str, tuple[tuple[Job, ...], ...]] = {
    "disk": ((LEFT,), (OUTER,), (WHOLE,), (LAKE,)),
    "database": ((AGGREGATE,), (CHANGING,), (FOLLOWED,)),
    "store": ((LEFT,), (OUTER,)),
    "kafka": ((TOPIC,),),
    "cluster": ((LEFT, CHANGELOG),),
    "here": ((LEFT,),),
}
JOBS = {job.name: job for sets in RIGS.values() for jobs in sets for job in jobs}


@dataclass(frozen=True, slots=True)
class Places:
    """Where the jobs of a rig find and leave everything; empty for what it does not have."""

    root: str
    checkpoints: str = ""
    out: str = ""
    store: str = ""
    url: str = ""
    secret: str = ""
    broker: str = ""
    topics: str = ""
    master: str = "local[2]"
    jobs: str = ""

    def write(self, path: Path) -> None:
        """Store them for the driver."""
        path.write_text(json.dumps({name: getattr(self, name) for name in self.__slots__}))

    @staticmethod
    def read(path: Path) -> Places:
        """What ``write`` has stored."""
        return Places(**json.loads(path.read_text()))


def sources(places: Places) -> list[str]:
    """The statements that define what the jobs read."""
    statements = []
    follows = any(JOBS[name].follows for name in places.jobs.split())
    for name, format in FORMATS.items():
        if places.topics:
            if name in CHANGING_STREAMS:
                continue
            options = f"connector = 'kafka', brokers = '{places.broker}', topic = '{places.topics}-{name}'"
        elif follows and name in CHANGING_STREAMS:
            login = f"user = 'postgres', password = '${{file:{places.secret}}}'"
            options = f"connector = 'postgres', url = '{places.url}', table = '{name}', {login}, timeout = '10 seconds'"
        else:
            connector = "'delta'" if format == "delta" else f"'files', format = '{format}'"
            options = f"connector = {connector}, path = '{places.root}/in/{name}', max_files_per_trigger = '1'"
        columns, unit = (_DATED, "") if format == "delta" else (_COLUMNS, ", event_time_unit = 's'")
        kind, key = ("MUTABLE STREAM", " PRIMARY KEY (id)") if name in CHANGING_STREAMS else ("STREAM", "")
        statements.append(f"CREATE {kind} IF NOT EXISTS {name} {columns}{key} WITH ({options}{unit})")
    return statements


def sink(job: Job, places: Places) -> str:
    """The statement that defines what a job writes."""
    values: Mapping[str, str] = {name: getattr(places, name) for name in places.__slots__}
    kind = "MUTABLE STREAM" if "PRIMARY KEY" in job.sink else "STREAM"
    return f"CREATE {kind} IF NOT EXISTS {job.target} " + job.sink.format(**values, table=job.target)


def store_url(name: str = BUCKET) -> str:
    """The bucket as Spark names it."""
    return f"s3a://{name}"


def as_counter(rows: list[tuple[object, ...]]) -> Counter[tuple[object, ...]]:
    """Rows, without those that closed windows."""
    return Counter(row for row in rows if not any(isinstance(row[at], int) and row[at] < 0 for at in (0, 2)))  # type: ignore[operator]
