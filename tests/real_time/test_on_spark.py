"""Queries in real time on Spark, with a real broker: what they write, what a crash repeats, and what is refused."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.real_time.topic_results import Result, results, rows_of_topic, without_repeats
from tests.support.jobs import PATIENCE_SECONDS, json_rows, run_job
from tests.support.kafka_broker import Broker
from tests.support.workers import workers
from watersmeet import QueryMode, Session
from watersmeet.errors import CheckpointError, ConfigError, LimitError, UnsupportedError
from watersmeet.runtime.query import RunningQuery
from watersmeet.session.results import Started

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]

STREAMS = """
CREATE STREAM o (id BIGINT, k BIGINT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '9' SECONDS) {o};
CREATE STREAM p (id BIGINT, k BIGINT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '9' SECONDS) {p};
CREATE MUTABLE STREAM c (id BIGINT, k BIGINT, name STRING) PRIMARY KEY (id) {c};
CREATE MUTABLE STREAM d (id BIGINT, k BIGINT, name STRING) PRIMARY KEY (id) {d};
"""
QUERIES = {
    # two bad records are quarantined; padded rows come when the frontier passes
    "padded": "SELECT o.id, o.ts, p.id AS pid FROM o LEFT JOIN p ON o.k = p.k WITHIN INTERVAL '5' SECONDS",
    # two operators in one stage, whose results meet in the next one
    "names": "SELECT c.id, d.id AS did, c.name, d.name AS dname FROM c LEFT JOIN d ON c.k = d.k",
    "counts": "SELECT o.k, count(*) AS n FROM o JOIN p ON o.k = p.k WITHIN INTERVAL '5' SECONDS GROUP BY o.k",
    # aggregates over an aggregate over a join: three stages
    "sizes": "SELECT n, count(*) AS groups FROM (SELECT o.k, o.id % 3 AS g, count(*) AS n FROM o JOIN p ON o.k = p.k"
    " WITHIN INTERVAL '5' SECONDS GROUP BY o.k, o.id % 3) GROUP BY n",
}


def options(broker: Broker, topic: str, more: str = "") -> str:
    return f"WITH (connector = 'kafka', brokers = '{broker.address}', topic = '{topic}'{more})"


def started(session: Session, script: str) -> RunningQuery:
    (query,) = [result.query for result in session.run(script, real_time=True) if isinstance(result, Started)]
    return query


def net(found: Sequence[Result]) -> Counter[tuple[Any, ...]]:
    total: Counter[tuple[Any, ...]] = Counter()
    for each in found:
        assert each.value is not None
        row = dict(each.value)
        weight = row.pop("_tp_delta", 1)
        total[tuple(row.values())] += weight
    return Counter({row: n for row, n in total.items() if n})


def net_of_files(folder: Path, *, changes: bool) -> Counter[tuple[Any, ...]]:
    total = Counter[tuple[Any, ...]]()
    for row in json_rows(folder):
        *values, weight = row if changes else (*row, 1)
        total.update({tuple(values): weight})
    return Counter({row: n for row, n in total.items() if n})


def wait_for(condition: Callable[[], bool], query: RunningQuery | None = None) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        if query is not None:
            query.wait(0)
        time.sleep(0.5)


def more_results(broker: Broker, topic: str, known: int, query: RunningQuery) -> int:
    """Wait until a topic holds more than ``known`` records, and return how many."""
    wait_for(lambda: len(results(broker, topic)) > known, query)
    return len(results(broker, topic))


def rows(kind: str, first: int, count: int) -> list[str]:
    """Rows in the order of their times but for a few seconds; of changing streams, changes of few keys."""
    r = random.Random(f"{kind}{first}")
    found = []
    for number in range(first, first + count):
        row: dict[str, Any] = {"id": number, "k": r.randint(1, 6)}
        if kind in "op":
            row["ts"] = max(0, number // 2 - r.randint(0, 4)) * 1000
        else:
            row |= {"id": r.randint(1, 8), "name": r.choice("xyz")}
        found.append(json.dumps(row))
    return found


@pytest.mark.slow
def test_results_are_those_of_micro_batches(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], session: Session, tmp_path: Path
) -> None:
    topics = {kind: new_topic() for kind in "opcd"}
    out = {name: new_topic() for name in QUERIES}
    times = ", event_time_unit = 'ms'"
    session.sql(STREAMS.format(**{k: options(broker, t, times if k in "op" else "") for k, t in topics.items()}))
    session.sql(f"""
        CREATE STREAM padded {options(broker, out["padded"])};
        CREATE STREAM names {options(broker, out["names"], ", changelog = 'true'")};
        CREATE MUTABLE STREAM counts (k BIGINT, n BIGINT) PRIMARY KEY (k) {options(broker, out["counts"])};
        CREATE MUTABLE STREAM sizes (n BIGINT, groups BIGINT) PRIMARY KEY (n) {options(broker, out["sizes"])};
    """)
    queries = {
        name: started(session, f"INSERT INTO {name} {sql} SETTINGS epoch = '2 seconds'")
        for name, sql in QUERIES.items()
    }
    for part in range(4):
        for kind, topic in topics.items():
            bad = ["no json", '{"id": "x"}'] if (kind, part) == ("o", 1) else []
            for partition in (0, 1):
                values = rows(kind, 200 * part + 100 * partition, 50)
                broker.produce(spark, topic, [*values[:20], *bad[:1], *values[20:], *bad[1:]], partition=partition)
        time.sleep(1)
    session.sql(
        "".join(
            f"CREATE STREAM files_{name} WITH (connector = 'files', path = '{tmp_path / name}', changelog = 'true');"
            for name in QUERIES
        )
    )
    jobs = (f"INSERT INTO files_{name} {sql} SETTINGS mode = 'micro_batch'" for name, sql in QUERIES.items())
    run_job(session, ";".join(jobs), QueryMode.DRAIN)
    expected = {name: net_of_files(tmp_path / name, changes=name != "padded") for name in QUERIES}
    assert all(expected.values())
    wait_for(lambda: net(results(broker, out["padded"])) == expected["padded"], queries["padded"])
    wait_for(lambda: net(results(broker, out["names"])) == expected["names"], queries["names"])

    def holds(name: str) -> bool:
        return rows_of_topic(results(broker, out[name])) == expected[name].keys()

    for name in ("counts", "sizes"):
        wait_for(partial(holds, name), queries[name])
    wait_for(lambda: queries["padded"].report().quarantined.get("o") == 4)
    report = queries["padded"].report()
    assert report.rows_in == {"o": 404, "p": 400}
    side = Path(queries["padded"].checkpoint, "side")
    assert sum(len(path.read_text().splitlines()) for path in side.glob("*.jsonl")) == 4


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, 12])
def test_a_killed_worker_loses_nothing(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], session: Session, kills: int
) -> None:
    topics, out = {kind: new_topic() for kind in "op"}, new_topic()
    streams = {k: options(broker, t, ", event_time_unit = 'ms'") for k, t in topics.items()}
    session.sql("".join(STREAMS.partition("CREATE MUTABLE")[:1]).format(**streams))
    session.sql(f"CREATE STREAM padded {options(broker, out)}")
    job = f"INSERT INTO padded {QUERIES['padded']} SETTINGS epoch = '2 seconds'"
    query = started(session, job)
    first = known = 0
    for kill in range(kills + 1):
        for kind, topic in topics.items():
            broker.produce(spark, topic, rows(kind, first, 100), partition=kill % 2)
        first += 100
        known = more_results(broker, out, known, query)
        if kill < kills:
            with suppress(ProcessLookupError):
                wait_for(lambda: bool(workers(spark)), query)  # between two epochs there may be none
                os.kill(random.Random(kill).choice(workers(spark)), signal.SIGKILL)
            time.sleep(1)
    query.stop()
    again = started(session, job)  # the same checkpoint, in a new run
    values = [json.dumps({"id": 10**6, "k": 1, "ts": 10**9})]
    for topic in topics.values():
        for partition in (0, 1):
            broker.produce(spark, topic, values, partition=partition)
    expected = pairs_and_padded(first)
    wait_for(lambda: net(without_repeats(results(broker, out))).keys() >= expected, again)
    kept = net(without_repeats(results(broker, out)))
    assert {row for row in kept if row[1] < 10**9} == expected
    assert {n for row, n in kept.items() if row[1] < 10**9} == {1}
    # the same rows come again, and no others
    assert {row for row in net(results(broker, out)) if row[1] < 10**9} == expected


@pytest.mark.slow
def test_a_run_that_was_broken_off_in_its_first_write_is_followed_by_another(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], session: Session
) -> None:
    """Spark begins no first epoch beside a file in the folder of its commits, even one without a name of its own."""
    topic, out = new_topic(1), new_topic()
    session.sql(f"CREATE STREAM o (id BIGINT) {options(broker, topic)}; CREATE STREAM passed {options(broker, out)}")
    query = started(session, "INSERT INTO passed SELECT id FROM o SETTINGS buckets = 1")
    broker.produce(spark, topic, [json.dumps({"id": 1})])
    known = more_results(broker, out, 0, query)
    for kind in ("commits", "offsets"):
        Path(query.checkpoint, "spark", kind, ".0.916a4389-ca90-43b4-8fb3-9515b6811b38.tmp").write_bytes(b"v1")
    os.kill(workers(spark)[0], signal.SIGKILL)
    broker.produce(spark, topic, [json.dumps({"id": 2})])
    more_results(broker, out, known, query)
    query.stop()
    assert net(without_repeats(results(broker, out))).keys() >= {(2,)}


def pairs_and_padded(count: int) -> set[tuple[Any, ...]]:
    """The left join of what was sent, as slowly as can be."""
    left, right = ([json.loads(row) for n in range(0, count, 100) for row in rows(kind, n, 100)] for kind in "op")
    found = set()
    for o in left:
        partners = [p["id"] for p in right if p["k"] == o["k"] and abs(p["ts"] - o["ts"]) <= 5000]
        found |= {(o["id"], o["ts"], pid) for pid in partners or [None]}
    return found


def test_rows_are_printed_as_they_come(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], session: Session
) -> None:
    topic = new_topic(1)
    session.sql(f"CREATE STREAM o (id BIGINT) {options(broker, topic)}")
    shown: list[tuple[Any, ...]] = []
    session.show = lambda names, changes, batch: shown.extend(changes)
    query = started(session, "SELECT id, id * 2 AS twice FROM o SETTINGS epoch = '10 minutes'")
    broker.produce(spark, topic, ['{"id": 1}', '{"id": 2}'])
    wait_for(lambda: len(shown) == 2, query)
    assert sorted(shown) == [(1, (1, 2)), (1, (2, 4))]
    query.stop()


def test_the_limit_of_a_join_is_that_of_all_its_buckets(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], session: Session
) -> None:
    """All rows have one key, and take most of the limit: more than an even share, which a bucket had once."""
    o, p = new_topic(1), new_topic(1)
    for name, topic in {"o": o, "p": p}.items():
        session.sql(f"CREATE STREAM {name} (id BIGINT, k BIGINT) {options(broker, topic)}")
    shown: list[tuple[Any, ...]] = []
    session.show = lambda names, changes, batch: shown.extend(changes)
    query = started(
        session,
        "SELECT o.id, p.id AS pid FROM o JOIN p ON o.k = p.k "
        "SETTINGS epoch = '1 second', buckets = 2, join_max_buffered_bytes = 6000",
    )
    broker.produce(spark, o, [json.dumps({"id": number, "k": 1}) for number in range(100)])
    for partner in (1, 2):  # in an epoch each
        broker.produce(spark, p, [json.dumps({"id": partner, "k": 1})])
        wait_for(lambda count=100 * partner: len(shown) == count, query)  # type: ignore[misc]
        wait_for(lambda: query.report().state_bytes > 3000, query)
    broker.produce(spark, o, [json.dumps({"id": number, "k": 2}) for number in range(100)])
    with pytest.raises(LimitError, match="has reached its limit"):
        wait_for(lambda: False, query)


def test_results_of_several_stages_wait_for_no_later_record(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], session: Session
) -> None:
    topic, out = new_topic(), new_topic()
    session.sql(f"CREATE MUTABLE STREAM o (id BIGINT, k BIGINT) PRIMARY KEY (id) {options(broker, topic)}")
    session.sql(f"CREATE MUTABLE STREAM sizes (n BIGINT, groups BIGINT) PRIMARY KEY (n) {options(broker, out)}")
    counts = "SELECT k, count(*) AS c FROM o GROUP BY k"
    of_counts = f"SELECT c, count(*) AS groups FROM ({counts}) WHERE bit_count(c) > 0 GROUP BY c"  # only Spark can
    query = started(session, f"INSERT INTO sizes {of_counts} SETTINGS epoch = '10 minutes'")

    def has_come(expected: Counter[int]) -> bool:
        return rows_of_topic(results(broker, out)) == set(expected.items())

    taken = Counter[int]()
    for number in range(8):
        taken[number % 4] += 1
        broker.produce(spark, topic, [json.dumps({"id": number, "k": number % 4})], partition=number % 2)
        wait_for(partial(has_come, Counter(taken.values())), query)
    query.stop()


@pytest.mark.slow
@pytest.mark.parametrize("key", ["c.id", "c.id + d.id % 1"])  # the second one is computed by Spark, of two streams
def test_rows_of_a_key_that_move_between_tasks_come_in_their_order(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], session: Session, key: str
) -> None:
    topics, out = {kind: new_topic() for kind in "cd"}, new_topic()
    for kind, topic in topics.items():
        columns = "(id BIGINT, k BIGINT, name STRING) PRIMARY KEY (id)"
        session.sql(f"CREATE MUTABLE STREAM {kind} {columns} {options(broker, topic)}")
    session.sql(f"CREATE MUTABLE STREAM moved (id BIGINT, name STRING) PRIMARY KEY (id) {options(broker, out)}")
    job = f"INSERT INTO moved SELECT {key} AS id, d.name FROM c JOIN d ON c.k = d.id SETTINGS epoch = '2 seconds'"
    current: dict[str, dict[int, Any]] = {kind: {} for kind in topics}
    query = started(session, job)
    for part in range(4):
        if part == 2:
            query.stop()
            query = started(session, job)
        for kind, topic in topics.items():
            sent = [json.loads(row) for row in rows(kind, 100 * part, 100)]
            current[kind] |= {row["id"]: row for row in sent}
            for partition in (0, 1):  # the changes of a key are in one partition
                own = [json.dumps(row) for row in sent if row["id"] % 2 == partition]
                broker.produce(spark, topic, own, partition=partition)
        query.wait(1)
        if part == 2:  # the query is run again: what Spark shows of its plan is no error of ours
            wait_for(lambda: bool(workers(spark)), query)
            with suppress(ProcessLookupError):
                os.kill(workers(spark)[0], signal.SIGKILL)
    names = {id: row["name"] for id, row in current["d"].items()}
    expected = {(id, names[row["k"]]) for id, row in current["c"].items() if row["k"] in names}
    wait_for(lambda: rows_of_topic(results(broker, out)) == expected, query)
    assert len(expected) == 8
    query.stop()


@pytest.mark.slow
def test_a_table_is_kept_and_late_rows_are_stored(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], session: Session, tmp_path: Path
) -> None:
    topics = {kind: new_topic(1) for kind in "op"}
    streams = {k: options(broker, t, ", event_time_unit = 'ms'") for k, t in topics.items()}
    session.sql("".join(STREAMS.partition("CREATE MUTABLE")[:1]).format(**streams))
    database = sqlite3.connect(tmp_path / "shop.db")
    database.execute("CREATE TABLE counts (k INTEGER PRIMARY KEY, n BIGINT)")
    table = f"(connector = 'jdbc', url = 'jdbc:sqlite:{tmp_path}/shop.db', table = 'counts')"
    session.sql(f"CREATE MUTABLE STREAM counts (k BIGINT, n BIGINT) PRIMARY KEY (k) WITH {table}")
    query = started(
        session,
        f"INSERT INTO counts {QUERIES['counts']} SETTINGS epoch = '2 seconds', late_rows = 'tardy', buckets = 1",
    )

    def send(kind: str, *sent: tuple[int, int, int]) -> None:
        values = [json.dumps({"id": id, "k": k, "ts": 1000 * at}) for id, k, at in sent]
        broker.produce(spark, topics[kind], values, partition=0)

    def stored() -> list[tuple[int, int]]:
        return database.execute("SELECT k, n FROM counts ORDER BY k").fetchall()

    send("o", (1, 1, 100), (2, 1, 101), (3, 2, 100))
    send("p", (1, 1, 102), (2, 2, 103))
    wait_for(lambda: stored() == [(1, 2), (2, 1)], query)
    for kind in topics:
        send(kind, (4, 3, 200))
    wait_for(lambda: stored() == [(1, 2), (2, 1), (3, 1)], query)
    send("o", (5, 1, 100))
    send("p", (6, 3, 201))
    wait_for(lambda: stored() == [(1, 2), (2, 1), (3, 2)], query)
    wait_for(lambda: query.report().late.get("o") == 1, query)
    wait_for(lambda: any((tmp_path / "workspace" / "streams" / "tardy").glob("*.parquet")), query)
    query.stop()
    session.sql(f"CREATE STREAM kept WITH (connector = 'files', path = '{tmp_path / 'kept'}')")
    run_job(session, "INSERT INTO kept SELECT source, raw FROM tardy", QueryMode.DRAIN)
    ((source, raw),) = json_rows(tmp_path / "kept")
    assert (source, json.loads(str(raw))) == ("o", {"id": 5, "k": 1, "ts": 100_000})
    database.close()


def test_what_real_time_cannot_do_is_refused(
    broker: Broker, new_topic: Callable[..., str], session: Session, tmp_path: Path
) -> None:
    session.sql(f"""
        CREATE STREAM o (id BIGINT, k BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts) {options(broker, new_topic())};
        CREATE STREAM here (id BIGINT);
        CREATE STREAM out {options(broker, new_topic())};
        CREATE STREAM folder WITH (connector = 'files', path = '{tmp_path}/out');
        CREATE STREAM kerberos (id BIGINT) {options(broker, new_topic(), ", 'kafka.sasl.kerberos.service.name' = 'x'")};
        CREATE STREAM gssapi (id BIGINT) {
        options(
            broker, new_topic(), ", 'kafka.security.protocol' = 'SASL_PLAINTEXT', 'kafka.sasl.mechanism' = 'GSSAPI'"
        )
    };
    """)

    def refused(sql: str, error: type[Exception], text: str, mode: QueryMode = QueryMode.CONTINUOUS) -> None:
        with pytest.raises(error, match=text):
            list(session.run(sql, mode, real_time=True))

    refused(
        "INSERT INTO out SELECT id FROM here", UnsupportedError, r"here \(embedded\) cannot be followed in real time"
    )
    refused(  # nor would more task slots help
        "INSERT INTO folder SELECT id FROM o SETTINGS buckets = 64",
        UnsupportedError,
        r"folder \(files\) cannot be written to in real time",
    )
    refused("INSERT INTO out SELECT id FROM kerberos", ConfigError, "librdkafka")
    refused("INSERT INTO out SELECT id FROM gssapi", ConfigError, "librdkafka")  # the broker is not asked before
    refused("INSERT INTO out SELECT id FROM o", UnsupportedError, "has no end", QueryMode.BOUNDED)
    refused("INSERT INTO out SELECT id FROM o SETTINGS buckets = 1000", ConfigError, "task slots")
    assert not [*(tmp_path / "workspace" / "queries").iterdir()], "what is refused leaves no folder"
    refused("INSERT INTO out SELECT id FROM o SETTINGS trigger = '1 second'", UnsupportedError, "set epoch instead")
    refused("CREATE STREAM s AS SELECT id FROM o", UnsupportedError, "stores the frontier with each batch")
    with pytest.raises(ConfigError, match="mode is micro_batch or real_time, not bounded"):
        session.sql("INSERT INTO out SELECT id FROM o SETTINGS mode = 'real_time'", mode="bounded")
    with pytest.raises(ConfigError, match="cannot be a DataFrame"):
        session.sql("SELECT id FROM o", mode="real_time")
    with pytest.raises(ConfigError, match="mode"):
        session.sql("INSERT INTO out SELECT id FROM o SETTINGS mode = 'realtime'")


def test_a_checkpoint_of_the_other_mode_is_refused(
    broker: Broker, new_topic: Callable[..., str], session: Session
) -> None:
    session.sql(f"CREATE STREAM o (id BIGINT) {options(broker, new_topic(1))}")
    session.sql(f"CREATE STREAM out {options(broker, new_topic(1))}")
    run_job(session, "INSERT INTO out SELECT id FROM o", QueryMode.DRAIN)
    with pytest.raises(CheckpointError, match="was made with mode = 'micro_batch', and the query now has 'real_time'"):
        list(session.run("INSERT INTO out SELECT id FROM o", real_time=True))


def test_too_few_slots_are_refused_with_the_number(
    broker: Broker, new_topic: Callable[..., str], session: Session
) -> None:
    session.sql(f"CREATE STREAM o (id BIGINT) {options(broker, new_topic(1))}")
    session.sql(f"CREATE STREAM out {options(broker, new_topic(1))}")
    with pytest.raises(ConfigError, match="it needs 33 task slots, and Spark has 32") as error:
        list(session.run("INSERT INTO out SELECT id FROM o SETTINGS buckets = 32", real_time=True))
    assert error.value.hint is not None
    assert error.value.hint.startswith("SETTINGS buckets = 31, or start Spark with master local[33] or more, and keep")
    assert error.value.detail is not None
    assert error.value.detail.startswith("32 of them for 32 buckets")
