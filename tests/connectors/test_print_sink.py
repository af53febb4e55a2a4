"""What the ``print`` connector shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa

from watersmeet.catalog.streams import StreamDef
from watersmeet.connectors.connector import Writing
from watersmeet.connectors.print_sink import PrintConnector


def test_rows_are_shown_with_their_weights_also_if_columns_have_one_name(tmp_path: Path) -> None:
    shown: list[tuple[Sequence[str], list[Any]]] = []

    def show(names: Sequence[str], rows: Sequence[Any], batch: int) -> None:
        shown.append((names, [*rows, batch]))

    stream = StreamDef(name="out", columns=(), connector="print")
    write = PrintConnector().open_sink(Writing(stream, tmp_path, changelog=True, show=show))
    columns = [pa.array([1, 2]), pa.array([3, 4]), pa.array([1, -1])]
    rows = pa.Table.from_arrays(columns, names=["id", "id", "_tp_delta"])
    write(Mock(toArrow=lambda: rows), 7, "q")
    assert shown == [(["id", "id"], [(-1, (2, 4)), (1, (1, 3)), 7])]
