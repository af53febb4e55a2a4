"""What goes wrong where a database is written to: which failures may pass, and how they are told."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from watersmeet.connectors.connector import WRITES_ANEW
from watersmeet.errors import ConnectorError, SinkOutageError
from watersmeet.lookup.connections import Address, deadline, may_pass, place_of
from watersmeet.settings.secrets import hide

if TYPE_CHECKING:
    import sqlalchemy as sa

T = TypeVar("T")
#: States of SQL: a transaction that others do not let be serialized, a deadlock.
_ENDED_FOR_ANOTHER = ("40001", "40P01")
#: What the driver says of where it connects to, before the reason.
_OF_CONNECTION = re.compile(r".*connection to server at .* failed: (?:FATAL: +)?")


def without_address(said: str) -> str:
    """Return the reason in what the driver says of a connection that failed."""
    return _OF_CONNECTION.sub("", said)


class NoAnswerError(Exception):
    """The server does not answer in time, and the connection to it was cut."""


@contextmanager
def in_time(connection: sa.Connection, address: Address) -> Iterator[None]:
    """Raise ``NoAnswerError`` where the server does not answer in time."""
    import sqlalchemy as sa

    with deadline(connection, address.timeout) as limit:
        try:
            yield
        except sa.exc.DBAPIError:
            if limit.passed:
                raise NoAnswerError(f"the database did not answer within {address.timeout:g} seconds") from None
            raise


def is_tried_at_once(error: Exception) -> bool:
    """Return whether a second attempt may well succeed.

    The server may have restarted since a pooled connection was last used, or have ended this transaction for the sake
    of another one.
    """
    if getattr(error, "connection_invalidated", False):
        return True
    return getattr(getattr(error, "orig", None), "sqlstate", None) in _ENDED_FOR_ANOTHER


def in_two_attempts(attempt: Callable[[], T], what: str, address: Address, hint: str | None = WRITES_ANEW) -> T:
    """Call ``attempt``, and again where that may well help; raises as ``failure`` says, with a hint."""
    import sqlalchemy as sa

    for last in (False, True):
        try:
            return attempt()
        except (sa.exc.SQLAlchemyError, NoAnswerError) as error:
            if last or not is_tried_at_once(error):
                failed = failure(what, error, address)
                failed.hint = hint
                raise failed from None
    raise AssertionError  # the last attempt returns or raises


def failure(what: str, error: Exception, address: Address) -> ConnectorError:
    """Return an error with the first line of the driver's message, without secrets."""
    import sqlalchemy as sa

    said = str(getattr(error, "orig", None) or error).strip() or type(error).__name__
    said = hide(said.splitlines()[0])
    if isinstance(error, NoAnswerError) or (isinstance(error, sa.exc.DBAPIError) and may_pass(error)):
        reason = without_address(said)
        return SinkOutageError(f"{what}: {said}", waits_for=f"{place_of(address)}: {reason}")
    return ConnectorError(f"{what}: {said}")
