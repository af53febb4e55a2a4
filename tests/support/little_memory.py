"""Workers of little memory, in tests whose data is small."""

from __future__ import annotations

import duckdb
import pytest

from watersmeet.kernels.optimizers import Optimizers
from watersmeet.state import working_sets


def give_little_memory(patched: pytest.MonkeyPatch) -> None:
    """Working sets that are made from now on plan their queries as those of workers with little memory do."""

    def of_little_memory(connection: duckdb.DuckDBPyConnection, **_: bool) -> Optimizers:
        return Optimizers(connection, has_little_memory=True)

    patched.setattr(working_sets, "Optimizers", of_little_memory)
