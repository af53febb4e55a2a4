"""A campaign of kills: a job in real time is killed again and again, and its results are compared with the answer."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.real_time.kill_campaign.load import PARTITIONS, SIDES, Load
from tests.real_time.topic_results import Result, count, results, rows_of_topic, without_repeats
from tests.support.kafka_broker import Broker
from tests.support.killing import OF_EPOCHS, Victim, kill
from tests.support.postgres import Postgres

_START_SECONDS, _END_SECONDS = 300.0, 60.0
_LOOK_SECONDS = 0.5
#: How many kills come while the job starts or recovers, and within how many seconds after the kill before.
_WHILE_STARTING, _STARTING_SECONDS = 0.3, 12.0
_ROOT = Path(__file__).parents[3]


@dataclass(slots=True)
class Outcome:
    """What a campaign has found.  A sound one has no ``faults``."""

    kills: Counter[str] = field(default_factory=Counter)
    restarts: int = 0
    rows: int = 0
    repeats: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} {name}" for name, count in sorted(self.kills.items()))
        head = (
            f"{self.kills.total()} kills ({kills}), {self.restarts} restarts, {self.rows} rows, {self.repeats} repeats"
        )
        return "\n".join([head, *(self.faults or ["no fault: nothing lost, nothing doubled, no wrong row"])])


class Campaign:
    """Starts the job in a folder, and again whenever it has been ended."""

    def __init__(self, folder: Path, broker: Broker, epoch: float, seed: int, database: Postgres | None = None) -> None:
        """With a ``database``, the sizes are upserted into a table of it, and not into a topic."""
        self._folder, self._broker, self._epoch, self._database = folder, broker, epoch, database
        self._results_topics = ("padded", "counts") if database else ("padded", "counts", "sizes")
        self._topics = f"t{uuid.uuid4().hex}"
        self._drawn = random.Random(seed)
        self._job: subprocess.Popen[bytes] | None = None
        self.outcome = Outcome()

    def run(self, kills: int, victims: Sequence[Victim], say: Callable[[str], None] = lambda _: None) -> Outcome:
        """Kill so often, let the job finish, and return what is wrong with its results."""
        self._create_topics()
        folder = self._folder
        folder.mkdir(parents=True, exist_ok=True)
        self._create_table()
        with (folder / "job.log").open("ab") as log:
            try:
                with Load(self._broker, self._topics) as load:
                    with suppress(KeyboardInterrupt):  # fewer kills, and their verdict
                        while (done := self.outcome.kills.total()) < kills:
                            say(f"{done + 1}: {self._kill(self._drawn.choice(victims), log)}")
                    self._progress(log)
                load.close_windows()
                self._check(load, log)
            finally:
                self._end()
        return self.outcome

    def _kill(self, victim: Victim, log: IO[bytes]) -> str:
        """Kill a part of the job: most times after it has made progress, sometimes while it starts or recovers."""
        if self._drawn.random() < _WHILE_STARTING:
            job, moment = self._running(log), "while starting"
            time.sleep(self._drawn.uniform(0, _STARTING_SECONDS))
        else:
            job, moment = self._progress(log), self._drawn.choice(OF_EPOCHS)
            moment.wait(self._folder / "workspace", self._drawn)
        if not kill(victim, job.pid, self._drawn):
            return f"{victim}, {moment}: there is none"
        self.outcome.kills[victim] += 1
        if victim.ends_the_driver:
            with suppress(subprocess.TimeoutExpired):
                job.wait(_END_SECONDS)
            self._end()
            self.outcome.restarts += 1
        return f"{victim}, {moment}"

    def _running(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """The job, which is started if it does not run."""
        if self._job is None:
            arguments = [str(self._folder), self._broker.address, self._topics, str(self._epoch)]
            self._job = subprocess.Popen(
                [sys.executable, "-m", "tests.real_time.kill_campaign.job", *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=_ROOT,
            )
        return self._job

    def _progress(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Wait for new results of all queries, and return the job."""
        known = self._written()
        self._wait(lambda: all(now > before for now, before in zip(self._written(), known, strict=True)), log)
        return self._running(log)

    def _wait(self, condition: Callable[[], bool], log: IO[bytes]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not condition():
            job = self._running(log)
            if job.poll() is not None:
                self.outcome.faults.append(
                    f"the job ended by itself, with {job.returncode}: see {self._folder}/job.log"
                )
                self._job = None
            assert time.monotonic() < deadline, f"no results come: see {self._folder}/job.log"
            time.sleep(_LOOK_SECONDS)

    def _written(self) -> list[int]:
        return [count(self._broker, f"{self._topics}-{name}", PARTITIONS) for name in self._results_topics]

    def _results(self, name: str) -> list[Result]:
        return results(self._broker, f"{self._topics}-{name}", PARTITIONS)

    def _check(self, load: Load, log: IO[bytes]) -> None:
        """Compare what the topics hold, as consumers see it, with the answer."""
        rows, counts, outcome = load.pairs_and_padded(), load.counts(), self.outcome
        sizes = set(Counter(n for _, n in counts).items())
        with suppress(AssertionError):
            self._wait(lambda: self._padded().keys() >= rows.keys() and self._counted() == counts, log)
            self._wait(lambda: self._sizes() == sizes, log)
        kept, written = self._padded(), self._results("padded")
        outcome.rows, outcome.repeats = rows.total(), len(written) - kept.total()
        for what, wrong in {"lost": rows - kept, "doubled or wrong": kept - rows}.items():
            if wrong:
                outcome.faults.append(f"padded: {what}: {wrong.total()}, such as")
                ids = list(wrong)[:5]
                outcome.faults += [f"  {_row(each)} {each.headers}" for each in written if _row(each) in ids]
        unheard = {_row(each) for each in written} - rows.keys()
        if others := {row for row in unheard if row[0] >= 0}:
            outcome.faults.append(f"padded: rows that are in no answer: {sorted(others, key=repr)[:5]}")
        if wrong_counts := self._counted() ^ counts:
            outcome.faults.append(f"counts: {len(wrong_counts)} differ, such as {sorted(wrong_counts)[:5]}")
        if wrong_sizes := self._sizes() ^ sizes:
            outcome.faults.append(f"sizes: {len(wrong_sizes)} differ, such as {sorted(wrong_sizes)[:5]}")
            outcome.faults += self._history({size for size, _ in sorted(wrong_sizes)[:5]})

    def _padded(self) -> Counter[tuple[int, int | None]]:
        """The rows of the left join without repeats and without those that closed the windows."""
        rows = (_row(each) for each in without_repeats(self._results("padded")))
        return Counter(row for row in rows if row[0] >= 0)

    def _counted(self) -> set[tuple[int, int]]:
        return {(k, n) for k, n in rows_of_topic(self._results("counts")) if k >= 0}

    def _sizes(self) -> set[tuple[int, int]]:
        if self._database is not None:
            return set(self._database.execute("SELECT n, keys FROM sizes"))
        return set(rows_of_topic(self._results("sizes")))

    def _history(self, sizes: set[int]) -> list[str]:
        """What a topic was told of ``sizes``; a table does not keep that."""
        if self._database is not None:
            return []
        written = [each for each in self._results("sizes") if json.loads(each.key or b"{}").get("n") in sizes]
        return [f"  {each.key!r} {each.value} {each.headers}" for each in written]

    def _end(self) -> None:
        """End the job, if it runs."""
        if self._job is not None:
            assert self._job.stdin is not None
            self._job.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._job.wait(_END_SECONDS)
            self._job.kill()
            self._job.wait()
        self._job = None

    def _create_table(self) -> None:
        if self._database is not None:
            self._database.execute("CREATE TABLE IF NOT EXISTS sizes (n BIGINT PRIMARY KEY, keys BIGINT)")
            (self._folder / "database.url").write_text(self._database.url)
            (self._folder / "database.password").write_text(self._database.password)

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._broker.address})
        names = [f"{self._topics}-{name}" for name in (*SIDES, *self._results_topics)]
        for created in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
            created.result(30)
        deadline = time.monotonic() + _START_SECONDS
        while True:  # a new topic has no leader at first
            try:
                self._written()
                return
            except KafkaException:
                assert time.monotonic() < deadline, "the broker does not make the topics"
                time.sleep(_LOOK_SECONDS)


def _row(result: Result) -> tuple[int, int | None]:
    assert result.value is not None
    return result.value["id"], result.value.get("pid")
