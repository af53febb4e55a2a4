"""Workers of little memory, in tests whose data is small."""

from __future__ import annotations

from functools import cache

import pytest

from watersmeet.state.working_sets import WorkingSets
from watersmeet.testing import harness


def give_little_memory(patched: pytest.MonkeyPatch) -> None:
    """Harnesses that are made from now on plan their queries as workers with little memory do."""
    patched.setattr(harness, "_working_sets", _of_little_memory)


@cache
def _of_little_memory(table_bytes: int | None) -> WorkingSets:
    """This process's own, beside those of other harnesses: opening a connection takes longer than running a case."""
    return WorkingSets(keyed_bytes=1 << 30, table_bytes=table_bytes, has_little_memory=True)
