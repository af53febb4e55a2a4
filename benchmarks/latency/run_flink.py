"""Runs SQL in Flink until standard input ends.

    PYTHON -m benchmarks.latency.run_flink JSON

PYTHON has apache-flink.  JSON has ``settings`` of the job and ``statements``, of which the last starts it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from pathlib import Path

from benchmarks.latency.parent import when_input_ends

_POLL_SECONDS = 0.5


def main() -> None:
    """Run the job that the argument describes."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    job = json.loads(sys.argv[1])
    ends = threading.Event()
    when_input_ends(ends.set)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoints:
        environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        settings = {**job["settings"], "execution.checkpointing.dir": Path(checkpoints).as_uri()}
        for name, value in settings.items():
            environment.get_config().set(name, value)
        *definitions, insert = job["statements"]
        for each in definitions:
            environment.execute_sql(each)
        started = environment.execute_sql(insert)
        client = started.get_job_client()
        while not ends.wait(_POLL_SECONDS):
            if client.get_job_status().result().name in ("FAILED", "FAILING", "CANCELED"):
                started.wait()  # raises what ended the job
                raise SystemExit("the job has ended")
        client.cancel().result()


if __name__ == "__main__":
    main()
