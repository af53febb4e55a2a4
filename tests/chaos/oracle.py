"""The answer: what DuckDB makes of all rows at once, and what a job has written so far."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, TopicPartition
from pyarrow.fs import FileSelector, FileSystem

from tests.chaos.jobs import Job, as_counter
from tests.chaos.load import NAMES, PARTITIONS, Load
from tests.support.json_results import json_results

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

Rows = Counter[tuple[object, ...]]
_LOOKS = 2_000


def expected(job: Job, load: Load) -> Rows:
    """What the job must have written once it has read everything and all windows are closed."""
    schema = pa.schema([(name, pa.int64()) for name in NAMES])
    with duckdb.connect() as database:
        for name in job.reads:
            columns = zip(*load.rows[name], strict=True) if load.rows[name] else ([], [], [])
            database.register(name, pa.table(dict(zip(NAMES, map(list, columns), strict=True)), schema=schema))
        return as_counter(database.sql(job.answer).fetchall())


def set_aside(job: Job, load: Load) -> Counter[str]:
    """The records that the job must have quarantined, each once."""
    found: Counter[str] = Counter()
    for name in "" if job.follows else job.reads:
        found += load.malformed[name]
    return found


@dataclass(frozen=True, slots=True)
class Difference:
    """How what was found differs from what is due."""

    lost: Counter[Any]
    more: Counter[Any]

    def __bool__(self) -> bool:
        return bool(self.lost or self.more)

    def __str__(self) -> str:
        shown = [f"{len(rows)} {what}, such as {sorted(rows, key=repr)[:3]}" for what, rows in self._parts() if rows]
        return "; ".join(shown) or "equal"

    def _parts(self) -> list[tuple[str, Counter[Any]]]:
        return [("lost", self.lost), ("doubled or wrong", self.more)]


def difference(due: Counter[Any], found: Counter[Any]) -> Difference:
    """Compare two multisets."""
    return Difference(due - found, found - due)


def of_files(system: FileSystem, folder: str) -> Rows:
    """The rows of a sink of JSON files; of a changelog what it adds up to."""
    kept = json_results(system, folder)
    return Counter({row: kept[row] for row in as_counter(list(kept))})


def raw_of_side(system: FileSystem, folder: str) -> Counter[str]:
    """The records that a query has set aside, as they were read."""
    found: Counter[str] = Counter()
    for file in system.get_file_info(FileSelector(folder, recursive=True, allow_not_found=True)):
        if file.extension == "jsonl":
            with system.open_input_stream(file.path) as stream:
                found.update(json.loads(line)["raw"] for line in stream.read().decode().splitlines())
    return found


def of_delta(path: str, options: dict[str, str] | None = None) -> Rows:
    """The rows of a Delta table; none if it does not exist yet."""
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(path, options):
        return Counter()
    table = DeltaTable(path, storage_options=options).to_pyarrow_table()
    return as_counter([tuple(row.values()) for row in table.to_pylist()])


def of_database(server: Postgres, table: str) -> Rows:
    """The rows of a table."""
    return as_counter(server.execute(f"SELECT id, v, w FROM {table}"))


def of_topic(address: str, topic: str, isolation: str = "read_committed") -> Rows:
    """What a consumer reads of a topic up to its end."""
    settings = {
        "bootstrap.servers": address,
        "group.id": uuid.uuid4().hex,
        "isolation.level": isolation,
        "log_level": 0,
    }
    consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[tuple[object, ...]] = []
    ends: set[int | None] = set()
    try:
        for _ in range(_LOOKS):
            for message in consumer.consume(500, 0.1):
                if (error := message.error()) is None:
                    row = json.loads(message.value() or b"{}")
                    found.append((row.get("id"), row.get("v"), row.get("w")))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ends.add(message.partition())
            if len(ends) == PARTITIONS:
                return as_counter(found)
    finally:
        consumer.close()
    raise TimeoutError(f"topic {topic} has no end")


def last_batch(system: FileSystem, folder: str) -> int:
    """The number of the last batch that Spark has committed, by the folder of its commits; -1 if there is none."""
    found = system.get_file_info(FileSelector(folder, allow_not_found=True))
    return max((int(file.base_name) for file in found if file.base_name.isdigit()), default=-1)


Found = Callable[[], Rows]
