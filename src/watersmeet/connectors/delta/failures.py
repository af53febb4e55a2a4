"""What goes wrong where a Delta table is written to: one sentence, and whether it may pass."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from watersmeet.connectors.connector import WRITES_ANEW
from watersmeet.errors import ConnectorError, SinkOutageError, WatersmeetError
from watersmeet.filesystems import is_unreachable
from watersmeet.settings.secrets import hide

#: Another writer, which may be an attempt at the same batch whose answer was lost, has committed first.
_OVERTAKEN = re.compile("concurrent|already exists|Failed to commit transaction")


@contextmanager
def reporting(what: str) -> Iterator[None]:
    """Raise every failure of the table as a ``ConnectorError`` of one sentence, one that may pass as an outage."""
    try:
        yield
    except WatersmeetError:
        raise
    except Exception as error:  # noqa: BLE001 - the package raises bare Exceptions too
        from deltalake.exceptions import CommitFailedError

        is_overtaken = isinstance(error, CommitFailedError) and _OVERTAKEN.search(str(error)) is not None
        kind = SinkOutageError if is_overtaken or is_unreachable(str(error)) else ConnectorError
        raise kind(f"{what}: {hide(first_line(error))}", hint=WRITES_ANEW) from None


def first_line(error: Exception) -> str:
    """Return the first line, and the innermost cause if causes follow it."""
    first, *more = str(error).strip().splitlines() or [type(error).__name__]
    causes = [line.rpartition("↳")[2] for line in more if "↳" in line]
    return ": ".join(re.sub(r"\x1b\[\w*m", "", line).strip() for line in (first, *causes[-1:]))
