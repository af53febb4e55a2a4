"""Records that a task has read, before they are decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa


class Records(Protocol):
    """Some records of a source, those of a partition in its order."""

    @property
    def values(self) -> pa.Array:
        """The records' bytes (``binary``; NULL: a record without a value)."""

    def hidden(self, names: Sequence[str], numbers: np.ndarray) -> pa.Table:
        """Those of the columns ``_part``, ``_seq`` and ``_tp_…`` that they have, for the records of these numbers."""

    def raw(self, numbers: np.ndarray) -> pa.RecordBatch:
        """The records with these numbers, as Spark's own reader returns them."""
