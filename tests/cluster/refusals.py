"""What needs a disk that all machines share is refused with a sentence: embedded streams, local checkpoints and sinks.

python -m tests.cluster.refusals
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.cluster.lake import ROOT, define_streams, open_store, rows_of, table_of, write_streams
from tests.cluster.session import connect
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Started

SELECT = "SELECT id, v FROM o"


def main() -> int:
    """Try each, and return 1 if one is not refused."""
    store = open_store()
    write_streams(store, {"o": table_of(rows_of(0, 40))}, 1)
    session = connect("/tmp/workspace")
    define_streams(session, "o")
    session.sql("CREATE STREAM kept (id BIGINT, v BIGINT)")
    session.sql("CREATE STREAM local WITH (connector = 'files', path = 'file:/tmp/out', format = 'json')")
    session.sql("CREATE STREAM delta (id BIGINT, v BIGINT) WITH (connector = 'delta', path = '/tmp/table')")
    session.sql(f"CREATE STREAM far WITH (connector = 'files', path = '{ROOT}/out', format = 'json')")

    def insert(into: str, checkpoint: str) -> Callable[[], object]:
        def run() -> None:
            (started,) = session.run(f"INSERT INTO {into} {SELECT}", QueryMode.BOUNDED, checkpoint=checkpoint)
            assert isinstance(started, Started)
            started.query.wait(200)

        return run

    tries: dict[str, Callable[[], object]] = {
        "rows into an embedded stream": lambda: session.sql("INSERT INTO kept VALUES (1, 2)"),
        "a query into an embedded stream": insert("kept", f"{ROOT}/checkpoints/kept"),
        "a local sink": insert("local", f"{ROOT}/checkpoints/local"),
        "a local Delta table": insert("delta", f"{ROOT}/checkpoints/delta"),
        "a local checkpoint": insert("far", "file:/tmp/checkpoint"),
    }
    failures = 0
    for name, attempt in tries.items():
        try:
            attempt()
        except WatersmeetError as error:
            print(f"{name}: {error}".partition("\n")[0], flush=True)
        else:
            failures += 1
            print(f"{name}: is not refused", flush=True)
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
