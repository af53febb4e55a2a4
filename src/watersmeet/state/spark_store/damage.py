"""What readers of Spark's files raise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from watersmeet.errors import CheckpointError

#: What to do about a file that has changed.
RESTORE = "restore the checkpoint from a copy, or start on a new one (its state begins empty)"


class MissingFileError(CheckpointError):
    """A file is not there: it is lost, or a query that runs has deleted it meanwhile."""


def damaged(path: str, what: str) -> CheckpointError:
    """The error for a file whose bytes are not what Spark writes."""
    return CheckpointError(f"{path} is damaged: {what}", hint=RESTORE)


def unreadable(path: str, what: str) -> CheckpointError:
    """The error for a file in a format that only Spark reads."""
    return CheckpointError(f"{path} cannot be read without Spark: {what}", hint="see docs/sql/state.md, Limits")


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn the failures of a file system into ours."""
    try:
        yield
    except FileNotFoundError:
        raise MissingFileError(f"{path} is missing", hint=RESTORE) from None
    except (OSError, pa.ArrowException) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CheckpointError(f"{path} cannot be read: {reason}", hint="see that the user may read it") from None
