"""What decides in MariaDB and MySQL whether an upsert meets the row of its key and no other: catalogue and types."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from watersmeet.errors import ConnectorError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import sqlalchemy as sa
    from sqlalchemy.types import TypeEngine

#: Collations without ``nopad`` in their name by which a space at the end counts.
_UNPADDED = ("binary", "utf8mb4_0900_bin")
_PLACE = "table_schema = coalesce(:schema, database()) AND table_name = :name"


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table: its storage engine, the columns of its unique indexes, of AUTO_INCREMENT, and texts' collations.

    ``filled`` are the columns in which a NULL that is written becomes another value.
    """

    name: str
    engine: str
    has_transactions: bool
    unique: Mapping[str, Sequence[str]]
    counted: frozenset[str]
    filled: frozenset[str]
    collations: Mapping[str, str]


def facts_of(table: sa.Table, connection: sa.Connection) -> TableFacts:
    """Return what the catalogue of the server says of a table."""
    import sqlalchemy as sa

    def ask(query: str) -> Sequence[Any]:
        return connection.execute(sa.text(query), {"schema": table.schema, "name": table.name}).all()

    ((engine, transactions),) = ask(
        "SELECT t.engine, e.transactions FROM information_schema.tables AS t"
        f" LEFT JOIN information_schema.engines AS e ON e.engine = t.engine WHERE {_PLACE}"
    )
    unique: dict[str, list[str]] = defaultdict(list)
    for index, column, length in ask(
        "SELECT index_name, column_name, sub_part FROM information_schema.statistics"
        f" WHERE {_PLACE} AND non_unique = 0 ORDER BY index_name, seq_in_index"
    ):
        name = column or "an expression"
        unique[index].append(name if length is None else f"{name}({length})")
    counted, filled, collations = set(), set(), {}
    for column, collation, extra, kind, nullable in ask(
        "SELECT column_name, collation_name, extra, data_type, is_nullable"
        f" FROM information_schema.columns WHERE {_PLACE}"
    ):
        if "auto_increment" in extra.lower():
            counted.add(column)
            filled.add(column)
        if kind.lower() == "timestamp" and nullable == "NO":
            filled.add(column)
        if collation is not None:
            collations[column] = collation
    return TableFacts(
        name=table.name,
        engine=engine or "a view",
        has_transactions=transactions == "YES",
        unique=unique,
        counted=frozenset(counted),
        filled=frozenset(filled),
        collations=collations,
    )


def require_plain_names(table: sa.Table) -> None:
    """Raise ``ConnectorError`` for a column with ``%`` in its name, which SQLAlchemy 2 escapes twice in an upsert."""
    for column in table.c:
        if "%" in column.name:
            raise ConnectorError(
                f"column {column.name} of table {table.name} has % in its name: it cannot be written to",
                hint="give the column another name",
            )


def require_transactions(facts: TableFacts) -> None:
    """Raise ``ConnectorError`` for a table of MyISAM, say."""
    if not facts.has_transactions:
        raise ConnectorError(
            f"table {facts.name} is stored by {facts.engine}, which has no transactions",
            hint=f"ALTER TABLE {facts.name} ENGINE = InnoDB",
        )


def require_one_unique_index(facts: TableFacts, key: Sequence[str], written: Sequence[str]) -> None:
    """Raise ``ConnectorError`` where a row could meet another one than that of its key.

    An index with a column that the table itself counts can meet none, where that column is not written.
    """
    for index, columns in facts.unique.items():
        if set(columns) != set(key) and not set(columns) & (facts.counted - set(written)):
            shown = ", ".join(columns)
            raise ConnectorError(
                f"table {facts.name} has another unique index, {index} ({shown}): a row would replace the one that"
                " equals it there, whatever its key",
                hint="drop that index or make it one that is not unique; or declare its columns as PRIMARY KEY",
            )


def require_exact_texts(facts: TableFacts, key: Sequence[sa.ColumnElement[Any]]) -> list[str]:
    """Return the columns (``c0``, …) of a key whose texts may not end in a space, which would not count.

    Raises ``ConnectorError`` for a column by which different keys are equal, and for a FLOAT, which equals no number
    that is written.
    """
    from sqlalchemy.dialects import mysql

    padded = []
    for each in key:
        if isinstance(each.type, mysql.FLOAT):
            raise ConnectorError(
                f"column {each.name} of table {facts.name} is FLOAT: in a key it equals no number that is written",
                hint=f"ALTER TABLE {facts.name} MODIFY {each.name} DOUBLE",
            )
        collation = facts.collations.get(each.name)
        if collation is None:
            continue
        if not collation.endswith("_bin") and collation != "binary":
            raise ConnectorError(
                f"column {each.name} of table {facts.name} has the collation {collation}, by which different keys are"
                " equal, such as 'a' and 'A'",
                hint=f"ALTER TABLE {facts.name} MODIFY {each.name} … COLLATE {collation.split('_')[0]}_bin",
            )
        if not ("nopad" in collation or collation in _UNPADDED):
            padded.append(str(each.key))
    return padded


def moment_of(digits: int | None) -> TypeEngine[dt.datetime]:
    """Return the type of a TIMESTAMP with so many digits of a second: a moment, which sessions in UTC show."""
    found: TypeEngine[dt.datetime] = _moments()(fsp=digits)
    return found


@cache
def _moments() -> Any:
    import sqlalchemy as sa
    from sqlalchemy.dialects import mysql

    class Moment(sa.TypeDecorator[dt.datetime]):
        impl = mysql.TIMESTAMP
        cache_ok = True
        timezone = True

        @property
        def python_type(self) -> type[dt.datetime]:
            return dt.datetime

        @property
        def fsp(self) -> int | None:
            return getattr(self.impl, "fsp", None)

        def process_bind_param(self, value: Any, dialect: Any) -> Any:
            return value if value is None else value.astimezone(dt.UTC).replace(tzinfo=None)

        def process_result_value(self, value: Any, dialect: Any) -> Any:
            # a date that is no date, such as 0000-00-00, comes as text
            return value.replace(tzinfo=dt.UTC) if isinstance(value, dt.datetime) else value

    return Moment
