"""Random transactions on tables of PostgreSQL, and what a changing stream of their changes says that they hold."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from tests.support.planned_batches import PlannedBatches, Row
from tests.support.postgres import Postgres
from watersmeet.connectors.postgres.options import options_of
from watersmeet.connectors.postgres.reader import Subject
from watersmeet.connectors.postgres.source import planner
from watersmeet.connectors.postgres.table import Declared

SECRET = "WATERSMEET_TEST_POSTGRES"
COLUMNS = pa.schema([("id", pa.int32()), ("v", pa.string()), ("n", pa.int64())])
#: Longer than what is stored beside the other values, and not to be compressed.
_LARGE = 9_000


def connect(server: Postgres, user: str = "postgres") -> psycopg.Connection[Any]:
    """A session."""
    return psycopg.connect(host="127.0.0.1", port=server.port, user=user, password=server.password, dbname="postgres")


def subject(
    server: Postgres,
    folder: object,
    table: str,
    columns: pa.Schema = COLUMNS,
    *,
    whole: bool = False,
    key: Sequence[str] = ("id",),
    **more: str,
) -> Subject:
    """What is read of a table; ``whole``: in mode ``changelog_kv``."""
    os.environ[SECRET] = server.password
    given = {"url": server.url, "table": table, "user": "postgres", "password": f"${{env:{SECRET}}}", **more}
    given.setdefault("poll_interval", "50 ms")
    options = options_of(given)
    return Subject(Declared(table, columns, tuple(key), whole), options, options.address(), f"{folder}/{table}")


def planned(of: Subject, *, limited: bool = True) -> PlannedBatches:
    """The batches of a query that reads it."""
    return PlannedBatches(lambda: planner(of, limited=limited))


def newest(rows: Iterable[Row], key: Sequence[str] = ("id",)) -> list[tuple[Any, ...]]:
    """The rows that a ``versioned_kv`` stream says are there: of each key the newest by time and place."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        assert row["_bad"] is None, row["_bad"]
        at = tuple(row[name] for name in key)
        if at not in found or _order(found[at]) < _order(row):
            found[at] = row
    return sorted((_values(row) for row in found.values() if row["_tp_delta"] == 1), key=repr)


def added_up(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """The rows that a ``changelog_kv`` stream adds up to; none may be retracted that is not there."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in sorted(rows, key=_order):
        assert row["_bad"] is None, row["_bad"]
        found[_values(row)] += row["_tp_delta"]
        assert found[_values(row)] in (0, 1), row
    return sorted(found.elements(), key=repr)


def _order(row: Row) -> tuple[Any, Any]:
    return row["_tp_time"], row["_seq"]


def _values(row: Row) -> tuple[Any, ...]:
    return tuple(value for name, value in row.items() if not name.startswith("_"))


def stored(server: Postgres, table: str, columns: str = "id, v, n") -> list[tuple[Any, ...]]:
    """The rows of the table itself."""
    return sorted(server.execute(f"SELECT {columns} FROM {table}"), key=repr)


@dataclass
class Writers:
    """Sessions that write to tables at once, each in a transaction of its own, as ``drawn`` decides."""

    server: Postgres
    tables: Sequence[str]
    drawn: random.Random
    sessions: list[psycopg.Connection[Any]] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    large: Sequence[str] = ()
    """Tables that get large values."""

    def open(self, number: int) -> None:
        """Open sessions; a lock that another one holds is not waited for."""
        for _ in range(number):
            session = connect(self.server)
            session.execute("SET lock_timeout = '20ms'")
            session.commit()
            self.sessions.append(session)

    def close(self) -> None:
        """End all sessions, and their transactions somehow."""
        for session in self.sessions:
            self._end(session)
            session.close()

    def act(self, times: int) -> None:
        """Do something in some session: a change, the end of a transaction, a savepoint or a return to it."""
        for _ in range(times):
            session = self.drawn.choice(self.sessions)
            what = self.drawn.choices(
                ("insert", "update", "delete", "key", "end", "nested", "many"), (8, 8, 4, 3, 6, 3, 1)
            )[0]
            if what == "end":
                self._end(session)
            elif what == "nested":
                self._nested(session)
            else:
                self._try(session, what)

    def _end(self, session: psycopg.Connection[Any]) -> None:
        if self.drawn.random() < 0.75:
            session.commit()
        else:
            session.rollback()

    def _nested(self, session: psycopg.Connection[Any]) -> None:
        """A transaction within the transaction, which may be taken back by itself."""
        with suppress(psycopg.Error, _TakenBackError), session.transaction():
            for _ in range(self.drawn.randint(1, 3)):
                self._change(session, self.drawn.choice(("insert", "update", "delete", "key")))
            if self.drawn.random() < 0.4:
                raise _TakenBackError
            self.done["nested"] += 1

    def _try(self, session: psycopg.Connection[Any], what: str) -> None:
        try:
            with session.transaction():
                self._change(session, what)
        except psycopg.Error:
            self.done["failed"] += 1

    def _change(self, session: psycopg.Connection[Any], what: str) -> None:
        name = self.drawn.choice(self.tables)
        table = sql.Identifier(name)
        id, other, n = self.drawn.randint(1, 25), self.drawn.randint(1, 25), self.drawn.randint(-9, 9)
        text = self._text(large=name in self.large)
        execute = session.execute
        if what == "insert":
            query = "INSERT INTO {} VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v"
            execute(sql.SQL(query).format(table), (id, text, n))
        elif what == "many":
            query = "INSERT INTO {} SELECT i, 'many', i FROM generate_series(%s, %s) i ON CONFLICT DO NOTHING"
            execute(sql.SQL(query).format(table), (id, id + 40))
        elif what == "update":
            chosen = self.drawn.choice(("v = %s", "n = %s"))
            value = text if chosen[0] == "v" else n
            execute(sql.SQL("UPDATE {} SET " + chosen + " WHERE id = %s").format(table), (value, id))
        elif what == "key":
            execute(sql.SQL("UPDATE {} SET id = %s WHERE id = %s").format(table), (other, id))
        else:
            execute(sql.SQL("DELETE FROM {} WHERE id = %s OR id > 30").format(table), (id,))
        self.done[what] += 1

    def _text(self, *, large: bool) -> str | None:
        if large and self.drawn.random() < 0.3:
            return "".join(self.drawn.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=_LARGE))
        return self.drawn.choice((None, "", "a", 'é "\\ \t\n{},', "NULL", "x" * 50))


class _TakenBackError(Exception):
    """Ends a nested transaction."""
