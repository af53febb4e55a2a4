"""The mode of queries whose SETTINGS name none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from watersmeet.errors import ConfigError
from watersmeet.settings.query_settings import MODES, REAL_TIME
from watersmeet.sql.statements import CreateStream, InsertSelect, Query, Select, Statement, StatementSet

_SETTING = "mode"


def in_mode(statements: Iterable[Statement], mode: str | None) -> Iterator[Statement]:
    """The statements, whose queries run in ``mode`` unless they say otherwise (None: as they are).

    Raises ``ConfigError`` for another mode than those that SETTINGS take.
    """
    if mode is not None and mode not in MODES:
        raise ConfigError(
            f"mode is {' or '.join(MODES)}, not {mode}",
            hint="how long a query runs is said to session.run: session.run(text, QueryMode.BOUNDED)",
        )
    for statement in statements:
        query = _query(statement)
        if isinstance(statement, StatementSet):
            yield replace(statement, inserts=tuple(in_mode(statement.inserts, mode)))  # type: ignore[arg-type]
        elif mode is None or query is None or _SETTING in query.settings:
            yield statement
        else:
            yield replace(statement, query=replace(query, settings={**query.settings, _SETTING: mode}))  # type: ignore[arg-type]


def runs_in_real_time(statements: Iterable[Statement]) -> bool:
    """Whether one of the statements starts a query in real time."""
    for statement in statements:
        query = _query(statement)
        if isinstance(statement, StatementSet) and runs_in_real_time(statement.inserts):
            return True
        if query is not None and str(query.settings.get(_SETTING)).lower() == REAL_TIME:
            return True
    return False


def _query(statement: Statement) -> Query | None:
    return statement.query if isinstance(statement, Select | InsertSelect | CreateStream) else None
