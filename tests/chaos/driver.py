"""The process whose Spark runs the jobs, and how a campaign talks to it.

    python -m tests.chaos.driver PLACES RIG

takes a command in each line of its standard input, and answers with a line of JSON.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Protocol

from pyspark.sql import SparkSession

from tests.chaos.jobs import JOBS, Job, Places, sink, sources
from tests.support import spark_jars
from tests.support.jobs import QUICK_JVM
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.query import RunningQuery
from watersmeet.session.results import Started
from watersmeet.session.session import Session

ROOT = Path(__file__).parents[2]
_START_SECONDS, _ANSWER_SECONDS, _END_SECONDS = 180.0, 120.0, 30.0
#: What a query that has ended says of it: its error's class, its text; ``is_ours``: it is a ``WatersmeetError``.
Ending = dict[str, Any]


class LostDriverError(Exception):
    """The driver's process has ended, or does not answer."""


class Driver(Protocol):
    """Starts and stops jobs, in this process or another one."""

    pid: int

    def start(self, name: str) -> Ending | None:
        """Start a job; what prevents it comes back."""

    def stop(self, name: str) -> None:
        """Stop a job."""

    def status(self) -> dict[str, Ending | None]:
        """The jobs that were started, with the ends of those that have ended."""

    def close(self) -> None:
        """End it."""


class Here:
    """Runs the jobs in this process."""

    def __init__(self, session: Session, places: Places) -> None:
        self.pid = os.getpid()
        self._session = session
        self._jobs: Mapping[str, Job] = {name: JOBS[name] for name in places.jobs.split()}
        self._places = places
        self._running: dict[str, RunningQuery] = {}
        for statement in (*sources(places), *(sink(job, places) for job in self._jobs.values())):
            session.sql(statement)

    def start(self, name: str) -> Ending | None:
        """Start a job; what prevents it comes back."""
        where = self._places.checkpoints or None
        try:
            (started,) = self._session.run(self._jobs[name].insert, checkpoint=where)
        except Exception as error:  # noqa: BLE001 - it is told to the campaign
            return ending_of(error)
        assert isinstance(started, Started)
        self._running[name] = started.query
        return None

    def stop(self, name: str) -> None:
        """Stop a job."""
        if (query := self._running.pop(name, None)) is not None:
            query.stop()

    def status(self) -> dict[str, Ending | None]:
        """The jobs that were started, with the ends of those that have ended."""
        return {name: _ending(query) for name, query in self._running.items()}

    def close(self) -> None:
        """Stop the jobs."""
        for name in list(self._running):
            self.stop(name)


def _ending(query: RunningQuery) -> Ending | None:
    if query.is_active:
        return None
    try:
        query.wait(0)
    except Exception as error:  # noqa: BLE001 - it is told to the campaign
        return ending_of(error)
    return {"kind": "", "text": "it has ended without an error", "hint": "", "is_ours": False}


def ending_of(error: Exception) -> Ending:
    """What an error says, as JSON can have it."""
    ours = isinstance(error, WatersmeetError)
    hint = error.hint if isinstance(error, WatersmeetError) else ""
    return {"kind": type(error).__name__, "text": str(error), "hint": hint or "", "is_ours": ours}


class There:
    """Runs the jobs in a process of its own, which can be killed."""

    def __init__(self, places: Path, rig: str, log: IO[bytes], variables: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.driver", str(places), rig],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=ROOT,
            env={**os.environ, **variables},
        )
        self.pid = self._process.pid
        self._unread = b""
        self._read(_START_SECONDS)

    def start(self, name: str) -> Ending | None:
        """Start a job; what prevents it comes back."""
        found: Ending | None = self._ask("start", name)
        return found

    def stop(self, name: str) -> None:
        """Stop a job."""
        self._ask("stop", name)

    def status(self) -> dict[str, Ending | None]:
        """The jobs that were started, with the ends of those that have ended."""
        found: dict[str, Ending | None] = self._ask("status")
        return found

    def close(self) -> None:
        """End the process: it stops the jobs, and is killed if that takes long."""
        with suppress(BrokenPipeError):
            self._pipe(self._process.stdin).close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        self._process.kill()
        self._process.wait()
        self._pipe(self._process.stdout).close()

    def _ask(self, *command: str) -> Any:
        try:
            self._pipe(self._process.stdin).write(json.dumps(command).encode() + b"\n")
            self._pipe(self._process.stdin).flush()
        except OSError:
            raise LostDriverError from None
        return self._read(_ANSWER_SECONDS)

    def _read(self, seconds: float) -> Any:
        deadline = time.monotonic() + seconds
        output = self._pipe(self._process.stdout)
        while b"\n" not in self._unread:
            ready, _, _ = select.select([output], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(output.fileno(), 65_536) if ready else b""
            if not data:
                self.close()
                raise LostDriverError("it does not answer" if not ready else "it has ended")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None
        return pipe


def open_session(places: Places, rig: str) -> Session:
    """A session on a Spark of its own."""
    import watersmeet

    config = {
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.minBatchesToRetain": "20",
        **_of_store(),
        **(_of_cluster() if rig == "cluster" else {}),
    }
    if rig == "kafka":
        config["spark.jars"] = ",".join(spark_jars.package_jars("kafka"))
    return watersmeet.connect(workspace=f"{places.root}/disk/workspace", master=places.master, config=config)


def _of_store() -> dict[str, str]:
    address = os.environ.get("AWS_ENDPOINT_URL")
    if address is None:
        return {}
    return {
        "spark.jars": ",".join(spark_jars.s3_jars()),
        **{
            f"spark.hadoop.fs.s3a.{name}": value
            for name, value in {
                "endpoint": address,
                "path.style.access": "true",
                "access.key": os.environ["AWS_ACCESS_KEY_ID"],
                "secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
                # it needs the SDK's own copy of Netty, which is in a jar of 600 MB only
                "optimized.copy.from.local.enabled": "false",
                "performance.flags": "create,mkdir,delete",
                "attempts.maximum": "1",
                "retry.limit": "1",
            }.items()
        },
    }


def _of_cluster() -> dict[str, str]:
    from tests.cluster.session import spark_settings

    return {
        **spark_settings(),
        "spark.network.timeout": "15s",
        "spark.network.timeoutInterval": "5s",
        "spark.executor.heartbeatInterval": "3s",
        "spark.decommission.enabled": "true",
        "spark.storage.decommission.enabled": "true",
        "spark.storage.decommission.shuffleBlocks.enabled": "true",
        "spark.speculation": "true",
        "spark.speculation.interval": "200ms",
        "spark.speculation.quantile": "0.2",
        "spark.speculation.minTaskRuntime": "1s",
        "spark.sql.shuffle.partitions": "2",
    }


def main(places: str, rig: str) -> None:
    """Answer commands until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark prints goes to the log
    where = Places.read(Path(places))
    here = Here(open_session(where, rig), where)

    def answer(value: object) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    answer("ready")
    for line in sys.stdin:
        what, *name = json.loads(line)
        answer(getattr(here, what)(*name))
    here.close()
    spark = SparkSession.getActiveSession()
    if spark is not None:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
