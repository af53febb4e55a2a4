"""A job over Delta tables, which is to be killed: what is added to one, and what changes in another.

    python -m tests.spark.delta_kills FOLDER

runs the statements of ``job.sql`` in the folder until its queries have read all that there is.
"""

from __future__ import annotations

import sys
from pathlib import Path

import watersmeet
from tests.support.jobs import PATIENCE_SECONDS
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Started


def main() -> None:
    """Run the job."""
    folder = Path(sys.argv[1])
    settings = {"spark.sql.shuffle.partitions": "2"}
    session = watersmeet.connect(workspace=folder / "workspace", master="local[2]", config=settings)
    started = [
        each for each in session.run((folder / "job.sql").read_text(), QueryMode.DRAIN) if isinstance(each, Started)
    ]
    for each in started:
        assert each.query.wait(PATIENCE_SECONDS)
    session.stop()


if __name__ == "__main__":
    main()
