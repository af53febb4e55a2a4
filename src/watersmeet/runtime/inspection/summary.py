"""What ``watersmeet state`` shows: all queries in short, one query's operators, its largest keys, one key's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from watersmeet.errors import ConfigError, WatersmeetError, did_you_mean
from watersmeet.runtime.inspection.database import StateDatabase, plain_rows, state_database
from watersmeet.runtime.inspection.places import queries_of
from watersmeet.runtime.inspection.stored_query import StoredQuery, consistently

_QUERY = "query"
_OPERATORS = """SELECT operator, kind, count(*) AS buckets, sum(segments)::BIGINT AS segments,
sum(rows)::BIGINT AS rows, sum(bytes)::BIGINT AS bytes,
coalesce(min(oldest)::VARCHAR, min(oldest_t)::VARCHAR) AS oldest,
coalesce(max(newest)::VARCHAR, max(newest_t)::VARCHAR) AS newest,
coalesce(min(frontier)::VARCHAR, min(frontier_t)::VARCHAR) AS frontier,
round(max(rows) / nullif(avg(rows), 0), 2) AS skew FROM q0.buckets GROUP BY ALL ORDER BY operator"""
_RELATIONS = """SELECT operator, relation, input, count(DISTINCT bucket) AS buckets, count(*) AS segments,
sum(rows)::BIGINT AS rows, sum(bytes)::BIGINT AS bytes,
coalesce(min(oldest)::VARCHAR, min(oldest_t)::VARCHAR) AS oldest,
coalesce(max(newest)::VARCHAR, max(newest_t)::VARCHAR) AS newest
FROM q0.segments GROUP BY ALL ORDER BY operator, relation"""
_INPUTS = """SELECT operator, input, count(DISTINCT part) AS parts,
count(DISTINCT part) FILTER (idle) AS idle, coalesce(min(frontier)::VARCHAR, min(frontier_t)::VARCHAR) AS frontier
FROM q0.inputs GROUP BY ALL ORDER BY operator, input"""
_COUNTERS = """SELECT operator, counter, sum(value)::BIGINT AS value FROM q0.counters GROUP BY ALL
ORDER BY operator, counter"""
_KEYS = """SELECT operator, relation, input, "key", rows, bytes, oldest, newest FROM q0.keys
ORDER BY rows DESC, bytes DESC, operator, relation, "key" LIMIT $1"""
_ROWS = """SELECT operator, relation, input, bucket, coalesce("time"::VARCHAR, t::VARCHAR) AS "time", id, "row"
FROM q0.rows AS r"""
_CONDITION = """EXISTS (SELECT 1 FROM json_each(r."key") AS e
WHERE ($%d IS NULL OR lower(e.key) = $%d OR ends_with(lower(e.key), '.' || $%d))
AND coalesce(e.value ->> '$', 'NULL') = $%d)"""
_NAMES = """SELECT DISTINCT unnest(json_keys("key")) FROM q0.rows"""


@dataclass(frozen=True, slots=True)
class Listing:
    """A table to show: its name, the names of its columns, and its rows."""

    name: str
    columns: Sequence[str]
    rows: Sequence[tuple[object, ...]]


def list_queries(folder: str) -> Listing:
    """All queries with a checkpoint in a folder; one that is damaged says so and does not hide the others."""
    columns = ("query", "mode", "batch", "operators", "rows", "bytes", "written", "note")
    return Listing("queries", columns, [_in_short(folder, name) for name in queries_of(folder)])


def _in_short(folder: str, name: str) -> tuple[object, ...]:
    try:
        query = consistently(f"{folder.rstrip('/')}/{name}", lambda found: found)
    except WatersmeetError as error:
        return (name, None, None, None, None, None, None, error.message)
    manifests = [bucket.manifest for bucket in query.buckets]
    return (
        name,
        query.plan.mode,
        _batch(query),
        len(query.operators),
        sum(segment.rows for manifest in manifests for segment in manifest.segments),
        sum(manifest.nbytes for manifest in manifests),
        written(query),
        "sealed: its input has ended" if query.plan.sealed else "",
    )


def _batch(query: StoredQuery) -> int | None:
    """The number of the last batch, counted from the query's beginning."""
    return None if query.batch is None else query.batch + query.plan.batches_before


def written(query: StoredQuery) -> str | None:
    """When the last batch was committed, as the file system has it."""
    if query.batch is None:
        return None
    for info in query.files.infos(f"{query.plan.spark}/commits"):
        if info.base_name == str(query.batch) and info.mtime is not None:
            return datetime.fromtimestamp(info.mtime.timestamp(), UTC).isoformat(sep=" ", timespec="seconds")
    return None


def describe_state(folder: str) -> list[Listing]:
    """A query in short, its operators, what they store of each relation, its inputs, and its counters."""

    def described(query: StoredQuery) -> list[Listing]:
        with state_database() as database:
            database.add(_QUERY, query, ("segments", "buckets", "inputs", "counters"))
            head = ("checkpoint", "mode", "batch", "written", "sealed")
            first = (query.files.folder, query.plan.mode, _batch(query), written(query), query.plan.sealed)
            parts = {"operators": _OPERATORS, "relations": _RELATIONS, "inputs": _INPUTS, "counters": _COUNTERS}
            return [
                Listing(_QUERY, head, [first]),
                *(_listing(database, name, sql) for name, sql in parts.items()),
            ]

    return consistently(folder, described)


def largest_keys(folder: str, count: int) -> Listing:
    """The keys with the most rows, of each operator and relation."""

    def found(query: StoredQuery) -> Listing:
        with state_database() as database:
            database.add(_QUERY, query, ("keys",))
            return _listing(database, "keys", _KEYS, [count])

    return consistently(folder, found)


def rows_of_key(folder: str, conditions: Sequence[str]) -> Listing:
    """The stored rows of a key: ``column=value``, or a value in any column of the key; all conditions hold.

    Raises ``ConfigError`` for a column that is in no key.
    """
    wanted = [_parsed(condition) for condition in conditions]

    def found(query: StoredQuery) -> Listing:
        with state_database() as database:
            database.add(_QUERY, query, ("rows",))
            _check_names([name for name, _ in wanted if name is not None], database)
            terms: list[str] = []
            parameters: list[object] = []
            for name, value in wanted:
                at = len(parameters) + 1
                terms.append(_CONDITION % (at, at, at, at + 1))
                parameters += [name, value]
            sql = f'{_ROWS} WHERE {" AND ".join(terms)} ORDER BY operator, relation, bucket, t, id, "row"'
            return _listing(database, "rows", sql, parameters)

    return consistently(folder, found)


def _parsed(condition: str) -> tuple[str | None, str]:
    name, equals, value = condition.partition("=")
    if not equals:
        return None, condition
    if not name.strip():
        raise ConfigError(f"--key {condition} names no column", hint="write COLUMN=VALUE, or a value alone")
    return name.strip().lower(), value.strip()


def _check_names(names: Sequence[str], database: StateDatabase) -> None:
    known = sorted(str(name) for (name,) in database.rows(_NAMES))
    short = {each.lower() for name in known for each in (name, name.rpartition(".")[2])}
    for name in names:
        if name not in short:
            raise ConfigError(
                f"no stored key has a column {name}",
                hint=did_you_mean(name, sorted(short))
                or (f"keys have {', '.join(known)}" if known else "nothing that is stored has a key"),
            )


def _listing(database: StateDatabase, name: str, sql: str, parameters: Sequence[object] = ()) -> Listing:
    schema, batches = database.select(sql, parameters)
    return Listing(name, schema.names, [row for batch in batches for row in plain_rows(batch)])
