"""What goes wrong where a database is written to: which failures may pass, and how they are told."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from watersmeet.connectors.connector import WRITES_ANEW
from watersmeet.errors import ConnectorError, SinkOutageError
from watersmeet.lookup.connections import Address, deadline, place_of
from watersmeet.settings.secrets import hide

if TYPE_CHECKING:
    import sqlalchemy as sa

T = TypeVar("T")
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


def is_tried_at_once(error: Exception, address: Address) -> bool:
    """Return whether a second attempt may well succeed.

    The server may have restarted since a pooled connection was last used, or have ended this transaction for the sake
    of another one.
    """
    if getattr(error, "connection_invalidated", False):
        return True
    return address.database.ended_for_another(getattr(error, "orig", None))


def in_two_attempts(attempt: Callable[[], T], what: str, address: Address, hint: str | None = WRITES_ANEW) -> T:
    """Call ``attempt``, and again where that may well help; raises as ``failure`` says, with a hint."""
    import sqlalchemy as sa

    for last in (False, True):
        try:
            return attempt()
        except (sa.exc.SQLAlchemyError, NoAnswerError) as error:
            if last or not is_tried_at_once(error, address):
                failed = failure(what, error, address)
                failed.hint = hint
                raise failed from None
    raise AssertionError  # the last attempt returns or raises


def failure(what: str, error: Exception, address: Address) -> ConnectorError:
    """Return an error with the first line of the driver's message, without secrets."""
    import sqlalchemy as sa

    cause = getattr(error, "orig", None)
    said = (str(error) if cause is None else address.database.said(cause)).strip() or type(error).__name__
    said = hide(said.splitlines()[0])
    if isinstance(error, NoAnswerError) or (isinstance(error, sa.exc.DBAPIError) and address.database.may_pass(error)):
        reason = without_address(said)
        return SinkOutageError(f"{what}: {said}", waits_for=f"{place_of(address)}: {reason}")
    return ConnectorError(f"{what}: {said}")
