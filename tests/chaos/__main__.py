"""Real faults on real Spark: ``make chaos``, or ``python -m tests.chaos [FAULT…] [--seed N] [--count N]``.

Each round lets one sort of fault happen some times to jobs that run, and compares all that they have written with what
DuckDB makes of all rows at once.  ``--count`` is how many rounds each sort has, and ``--minutes`` when no more begins.
The seed says which rows there are, the order of the faults and what is drawn; processes run as they do.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.chaos import campaign, damage, executors, kills, systems
from tests.chaos.hits import Fault, until
from tests.chaos.rig import say
from tests.chaos.table import Tally
from tests.cluster.cluster import run_in_cluster
from tests.cluster.hosts import SHARED_FOLDER, isolated
from tests.support import spark_jars

FAULTS: tuple[Fault, ...] = (*kills.FAULTS, *systems.FAULTS, *damage.FAULTS, *executors.FAULTS)
RIGS = ("disk", "database", "store", "kafka", "cluster")
#: A cluster is made anew so often: what its hosts write is in memory.
_CLUSTER_MINUTES = 9.0
_INSIDE = "WATERSMEET_CHAOS_INSIDE"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="which, by parts of their names; by default all")
    parser.add_argument("--rigs", nargs="+", choices=RIGS, default=RIGS, help="on which systems")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1, help="rounds of each fault on each rig")
    parser.add_argument("--minutes", type=float, default=600)
    parser.add_argument("--folder", type=Path, help="where logs and checkpoints stay")
    parser.add_argument("--table", nargs="+", type=Path, help="print the table of campaigns that were run, by folders")
    options = parser.parse_args()
    if options.table:
        return _table(options.table)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="watersmeet-chaos-"))
    if _INSIDE in os.environ or "CLUSTER_MASTER" in os.environ:
        return _here(folder, options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what runs inside ends too
    local = [kind for kind in options.rigs if kind != "cluster"]
    failed = _isolated(folder, options, local) if local else 0
    return max(failed, _on_clusters(folder / "clusters", options) if "cluster" in options.rigs else 0)


def _here(folder: Path, options: argparse.Namespace) -> int:
    """Run the rounds in this process."""
    if _INSIDE in os.environ:
        subprocess.run(["hostname", "localhost"], check=True, timeout=20)  # a name that is found without a network
    folder.mkdir(parents=True, exist_ok=True)
    say(f"logs are in {folder}")
    tally, is_over = Tally(), until(60 * options.minutes)
    for number in range(options.count):
        for kind in options.rigs:
            chosen = [fault for fault in FAULTS if kind in fault.rigs and _is_meant(fault, options.faults)]
            campaign.run(kind, chosen, options.seed + number, folder, tally, is_over)
    return _told(tally, folder)


def _isolated(folder: Path, options: argparse.Namespace, rigs: list[str]) -> int:
    """Run them where disks can be mounted, and where all that is started ends with this process."""
    spark_jars.s3_jars(), spark_jars.package_jars("kafka")  # inside there is no network
    arguments = [*options.faults, "--rigs", *rigs, "--seed", str(options.seed), "--count", str(options.count)]
    arguments += ["--minutes", str(options.minutes), "--folder", str(folder)]
    command = isolated([sys.executable, "-m", "tests.chaos", *arguments])
    with subprocess.Popen(command, env={**os.environ, _INSIDE: "1"}) as process:
        try:
            return process.wait()
        finally:
            process.kill()


def _on_clusters(folder: Path, options: argparse.Namespace) -> int:
    """One cluster after another, each for some minutes; it runs this module on the host of its driver."""
    tally, is_over = Tally(), until(60 * options.minutes)
    for number in range(options.count):
        logs = folder / f"cluster-{options.seed + number}"
        logs.mkdir(parents=True)
        arguments = [*options.faults, "--rigs", "cluster", "--seed", str(options.seed + number)]
        arguments += ["--minutes", str(_CLUSTER_MINUTES), "--folder", f"{SHARED_FOLDER}/chaos"]
        done = run_in_cluster(logs, "tests.chaos", *arguments, with_store=False)
        say(done.stdout + done.stderr[-4_000:])
        if (kept := logs / "shared" / "chaos" / "tally.json").exists():
            tally.take(kept)
        if is_over():
            break
    return _told(tally, folder)


def _told(tally: Tally, folder: Path) -> int:
    tally.write(folder)
    say(f"{tally.total} faults\n\n{tally.table()}\n")
    say("\n".join(tally.faults))
    return 1 if tally.faults else 0


def _is_meant(fault: Fault, names: list[str]) -> bool:
    return not names or any(name in fault.name for name in names)


def _table(folders: list[Path]) -> int:
    tally = Tally()
    for folder in folders:
        tally.take(folder / "tally.json")
    say(f"{tally.total} faults of {len(tally.counts)} sorts\n\n{tally.table()}\n\n{json.dumps(tally.said, indent=1)}")
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
