"""The log of the JVM in the workspace."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from watersmeet.cli import spark


def test_the_log_and_the_one_before_are_for_their_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "_LOG_BYTES", 1000)
    before = os.umask(0o022)
    try:
        with spark._Log(tmp_path / spark.LOG_NAME).taking_output() as output:
            os.write(output, b"".join(b"line %d of the JVM\n" % number for number in range(60)))
        for thread in threading.enumerate():
            if thread.name == "watersmeet-spark-log":
                thread.join()
    finally:
        os.umask(before)
    logs = {path.name: path for path in tmp_path.iterdir()}
    assert set(logs) == {"spark.log", "spark.log.1"}
    assert [stat.S_IMODE(path.stat().st_mode) for path in logs.values()] == [0o600, 0o600]
