"""Runs a workload in a process of its own, on this machine or on a cluster, and compares its results with DuckDB's."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.engines import batch_answer
from benchmarks.suite import output_of
from benchmarks.workloads import Workload
from tests.cluster.cluster import run_in_cluster

#: Pairs of a time in seconds since 1970 and the CPU seconds used until then.
Used = list[tuple[float, float]]


def on_this_machine(workload: Workload, folder: Path, buckets: int, *, by_files: bool) -> dict[str, Any]:
    """Return what a run with so many buckets said."""
    path = "files" if by_files else "shuffle"
    arguments = [workload.name, str(workload.data.rows), str(folder), str(buckets), path, "1"]
    command = [sys.executable, "-m", "benchmarks.scale.query", *arguments]
    return _checked(output_of(command, "watersmeet", workload.name), workload, folder)


def on_cluster(
    module: str,
    workload: Workload,
    folder: Path,
    arguments: Sequence[str],
    *,
    executors: int,
    cores: float | None = None,
) -> tuple[dict[str, Any], Used]:
    """Return what a run of a module of ``benchmarks.scale`` said, and the CPU seconds that its executors had used.

    Hosts share a folder, into which the streams are copied.  With ``cores``, each executor has so much of a core,
    and runs one task at a time; without it, two tasks, and its CPU is not known.
    """
    with tempfile.TemporaryDirectory(prefix="watersmeet-scale-") as scratch:
        logs = Path(scratch)
        shutil.copytree(folder, logs / "shared" / folder.name)
        where = f"/dev/shm/shared/{folder.name}"
        what = [workload.name, str(workload.data.rows), where, *arguments]
        program = f"benchmarks.scale.{module}"
        ran = run_in_cluster(logs, program, *what, executors=executors, with_store=False, cores=cores)
        if ran.returncode:
            raise SystemExit(f"{workload.name} failed on {executors} executors:\n{ran.stdout}{ran.stderr[-4000:]}")
        found = _checked(ran.stdout, workload, folder)
        if cores is None:
            return found, []
        lines = (json.loads(line) for line in (logs / "cpu.jsonl").read_text().splitlines())
        return found, [(line.pop("at"), sum(line.values())) for line in lines]


def _checked(output: str, workload: Workload, folder: Path) -> dict[str, Any]:
    """Return what a run said; end the program if its results are wrong."""
    found: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    expected = batch_answer(workload, folder)
    if found["sums"] != expected:
        raise SystemExit(f"{workload.name}: the results differ from DuckDB's: {found['sums']}, expected {expected}")
    return found
