"""A process that reads a table as ``PlannedBatches`` does, keeps what Spark would keep in files, and may be killed.

python -m tests.support.planned_process FOLDER PORT TABLE MODE DRAIN
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.support.planned_batches import PlannedBatches, Row
from tests.support.postgres import Postgres
from tests.support.postgres_changes import SECRET, subject
from watersmeet.connectors.postgres.source import planner


class KeptBatches(PlannedBatches):
    """Batches whose offsets and rows are kept in a folder, each before the next step, as Spark and a sink do."""

    def __init__(self, folder: Path, make: Any) -> None:
        super().__init__(make)
        self._folder = folder
        self.offsets = json.loads((folder / "offsets").read_text()) if (folder / "offsets").exists() else []
        self.committed = len(list(folder.glob("batch-*")))

    def planned(self) -> None:
        """Keep the offsets."""
        self._keep("offsets", json.dumps(self.offsets))

    def taken(self, rows: list[Row]) -> None:
        """Keep the rows of a batch, which commits it."""
        self._keep(f"batch-{self.committed:06}", json.dumps([_plain(row) for row in rows]))

    def _keep(self, name: str, text: str) -> None:
        hidden = self._folder / f".{name}"
        hidden.write_text(text)
        hidden.replace(self._folder / name)


def _plain(row: Row) -> Row:
    return {**row, "_tp_time": int(row["_tp_time"].timestamp() * 1_000_000), "_seq": row["_seq"].hex()}


def kept_rows(folder: Path) -> list[Row]:
    """The rows of all batches."""
    return [row for path in sorted(folder.glob("batch-*")) for row in json.loads(path.read_text())]


def main(folder: str, port: str, table: str, mode: str, drain: str) -> None:
    """Read until killed, or all that is there now."""
    server = Postgres(Path(), Path(), int(port), os.environ[SECRET], None)
    of = subject(server, f"{folder}/pieces", table, whole=mode == "whole", max_rows_per_trigger="3000")
    batches = KeptBatches(Path(folder), lambda: planner(of))
    if drain == "drain":
        batches.drain()
        return
    while True:
        batches.batch()


if __name__ == "__main__":
    main(*sys.argv[1:])
