"""A campaign of kills: the job is killed again and again while there is input, and resumed each time."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.jobs import environment
from tests.support.killing import OF_BATCHES, Victim, kill

_START_SECONDS, _END_SECONDS = 300.0, 60.0
_LOOK_SECONDS = 0.1
#: How many kills come while the job starts or recovers, and within how many seconds after the kill before.
_WHILE_STARTING, _STARTING_SECONDS = 0.2, 12.0
_ROOT = Path(__file__).parents[3]


def run(folder: Path, names: Sequence[str], seed: int, say: Callable[[str], None] = lambda _: None) -> Counter[Victim]:
    """Kill parts of the job until it is through the files in the folder; return how often each was killed.

    Raises ``AssertionError`` if the job fails, or makes no progress, for another reason.
    """
    drawn, kills = random.Random(seed), Counter[Victim]()
    with (folder / "job.log").open("ab") as log:
        while True:
            job = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.eviction_kills.job", str(folder), *names],
                stdout=log,
                stderr=log,
                cwd=_ROOT,
                env=environment(),
            )
            try:
                killed = _kill_parts(job, folder, len(names), kills, drawn, say)
                kills += killed
                if not any(victim.ends_the_driver for victim in killed):
                    assert job.wait(_END_SECONDS) == 0, f"the job failed by itself: see {folder}/job.log"
                    return kills
                with suppress(subprocess.TimeoutExpired):
                    job.wait(_END_SECONDS)
            finally:
                job.kill()
                job.wait()


def _kill_parts(
    job: subprocess.Popen[bytes],
    folder: Path,
    queries: int,
    before: Counter[Victim],
    drawn: random.Random,
    say: Callable[[str], None],
) -> Counter[Victim]:
    """Kill parts of a running job until one ends it, or it ends by itself: rather what was killed least ``before``."""
    kills = Counter[Victim]()
    while job.poll() is None:
        victim, moment = _rarest(before + kills, drawn), drawn.choice(OF_BATCHES)
        if drawn.random() < _WHILE_STARTING:
            time.sleep(drawn.uniform(0, _STARTING_SECONDS))
        elif _has_progressed(job, folder, queries):
            moment.wait(folder / "workspace", drawn, lambda: job.poll() is not None)
        if job.poll() is None and kill(victim, job.pid, drawn):
            say(f"{victim}, {moment}, after {_commits(folder)} batches")
            kills[victim] += 1
            if victim.ends_the_driver:
                return kills
    return kills


def _rarest(kills: Counter[Victim], drawn: random.Random) -> Victim:
    """Draw one of those that were killed least often; there may be none of it now, so that another must be drawn."""
    least = min(kills[victim] for victim in Victim)
    return drawn.choice([victim for victim in Victim if kills[victim] == least])


def _has_progressed(job: subprocess.Popen[bytes], folder: Path, batches: int) -> bool:
    """Wait until so many batches have been committed; False if the job has ended."""
    before, deadline = _commits(folder), time.monotonic() + _START_SECONDS
    while job.poll() is None:
        if _commits(folder) >= before + batches:
            return True
        assert time.monotonic() < deadline, f"no batch is committed: see {folder}/job.log"
        time.sleep(_LOOK_SECONDS)
    return False


def _commits(folder: Path) -> int:
    commits = (folder / "workspace").glob("queries/*/spark/commits/[0-9]*")
    return sum(1 for _ in commits)
