"""What a campaign runs on: disks, servers, a driver with its jobs, and how they are started again."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import IO

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyarrow.fs import FileSelector, FileSystem, LocalFileSystem, S3FileSystem

from tests.chaos import oracle
from tests.chaos.driver import Driver, Ending, LostDriverError, There
from tests.chaos.jobs import CHANGING_STREAMS, RIGS, Job, Places, store_url
from tests.chaos.load import APPEND_ONLY, FORMATS, PARTITIONS, Load, Row, sending
from tests.support.kafka_broker import Broker, kafka_broker
from tests.support.object_store import BUCKET, object_store
from tests.support.postgres import Postgres, postgres_server
from tests.support.relay import Relay, relay

_LOOK_SECONDS = 0.2
#: Disks in memory: what a job keeps, and what it needs for the moment.
DISKS = {"disk": "500m", "tmp": "400m"}
_ATTEMPTS = 40
#: How many files, about, are to be there that have not been read.
_BACKLOG = 4


class Rig:
    """The jobs of a kind, on a driver that is started again when it has ended.

    ``opens`` makes a driver, by default one in a process of its own.
    """

    def __init__(self, kind: str, folder: Path, seed: int, opens: Callable[[Places], Driver] | None = None) -> None:
        self.kind, self.folder = kind, folder
        self.jobs: tuple[Job, ...] = RIGS[kind][seed % len(RIGS[kind])]
        self.drawn = random.Random(f"{kind} {seed}")
        self.restarts = 0
        self.server: Postgres | None = None
        self.broker: Broker | None = None
        self.line: Relay | None = None
        self.driver: Driver
        self.load: Load
        self.opens = opens
        self.log: IO[bytes]
        #: What puts a file of a job right that is damaged, and whose damage has not been met yet.
        self.damage: dict[str, list[Callable[[], None]]] = defaultdict(list)
        self._seed = seed
        self._stack = ExitStack()
        self._variables: dict[str, str] = {}
        self._store: FileSystem = LocalFileSystem()
        self._found: dict[str, oracle.Found] = {}

    def __enter__(self) -> Rig:
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(LostDriverError, AttributeError):
            self.driver.close()
        self._stack.close()

    @property
    def workspace(self) -> Path:
        """The folder of the catalogue, and of checkpoints on the disk."""
        return self.folder / "disk" / "workspace"

    @property
    def temporary(self) -> Path:
        """The folder for temporary files of the driver."""
        return self.folder / "tmp"

    @property
    def out(self) -> Path:
        """The folder of results in files on the disk."""
        return self.folder / "disk" / "out"

    def checkpoint(self, job: Job) -> Path:
        """The checkpoint of a job, if it is on the disk."""
        return self.workspace / "queries" / f"into_{job.target}_from_{'_'.join(job.reads)}"

    # -- the driver ------------------------------------------------------------------------------------------------

    def keep(self) -> None:
        """Copy what is on the disks, which end with the rig, for who looks for a fault."""
        for name in DISKS if self.kind == "disk" else ():
            shutil.copytree(
                self.folder / name,
                self.folder / f"kept-{name}",
                ignore_dangling_symlinks=True,
                ignore=shutil.ignore_patterns("*.sock"),
                dirs_exist_ok=True,
            )

    def start_driver(self) -> None:
        """Start it, and all jobs; again if it ends meanwhile."""
        for _ in range(_ATTEMPTS):
            try:
                if self.opens is not None:
                    self.driver = self.opens(Places.read(self.folder / "places.json"))
                else:
                    self.driver = There(self.folder / "places.json", self.kind, self.log, self._variables)
                self._start_all()
                return
            except LostDriverError:
                self.end_driver()
        raise AssertionError(f"the driver does not start: see {self.folder}/driver.log")

    def _start_all(self) -> None:
        for job in self.jobs:
            self.start(job.name)

    def start(self, name: str) -> list[Ending]:
        """Start a job, and again while it is refused; the refusals come back."""
        refusals: list[Ending] = []
        for _ in range(_ATTEMPTS):
            ending = self.driver.start(name)
            if ending is None:
                return refusals
            refusals.append(ending)
            if "JVM has ended" in ending["text"]:
                raise LostDriverError
            self.restore(name)
            time.sleep(0.5)
        raise AssertionError(f"{name} does not start: {refusals[-1]}")

    def restore(self, name: str) -> None:
        """Put right whatever is damaged of a job, as its refusal asks for."""
        for put_right in self.damage.pop(name, []):
            put_right()

    def end_driver(self) -> None:
        """End what is left of it."""
        with suppress(LostDriverError, AttributeError):
            self.driver.close()

    def restart_driver(self) -> None:
        """End it and start it again; its next attempt at a batch gets the rows in another order."""
        self.end_driver()
        self.restarts += 1
        self.load.reorder(2 * _BACKLOG)
        self.start_driver()

    # -- progress and results --------------------------------------------------------------------------------------

    def progress(self) -> dict[str, int]:
        """The number of the last batch that each job has committed; -1 if there is none."""
        return {job.name: oracle.last_batch(*self._commits(job)) for job in self.jobs}

    def _commits(self, job: Job) -> tuple[FileSystem, str]:
        if self.kind == "store":
            return self._store, f"{BUCKET}/checkpoints/{self.checkpoint(job).name}/spark/commits"
        return self._store, str(self.checkpoint(job) / "spark" / "commits")

    def feed(self) -> None:
        """Give the jobs something to do, unless they have enough."""
        if self.load.files - min(self.progress().values()) < _BACKLOG or self.kind == "kafka":
            self.load.feed()

    def due(self) -> dict[str, tuple[oracle.Rows, Counter[str]]]:
        """What each job must have written, and set aside."""
        return {job.name: (oracle.expected(job, self.load), oracle.set_aside(job, self.load)) for job in self.jobs}

    def differences(self, due: Mapping[str, tuple[oracle.Rows, Counter[str]]]) -> dict[str, oracle.Difference]:
        """What is wrong with what each job has written, or set aside, by now."""
        found = {}
        for job in self.jobs:
            rows, aside = due[job.name]
            wrong = oracle.difference(rows, self._found[job.name]())
            if wrong := wrong or oracle.difference(aside, self._side(job)):
                found[job.name] = wrong
        return found

    def _side(self, job: Job) -> Counter[str]:
        if self.kind == "store":
            return oracle.raw_of_side(self._store, f"{BUCKET}/checkpoints/{self.checkpoint(job).name}/side")
        return oracle.raw_of_side(LocalFileSystem(), str(self.checkpoint(job) / "side"))

    # -- how it is made --------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "in").mkdir()
        for name in FORMATS:
            (self.folder / "in" / name).mkdir()
        for name, size in DISKS.items():
            (self.folder / name).mkdir()
            if self.kind == "disk" and self.opens is None:
                self._mount(self.folder / name, size)
        (self.folder / "disk" / "out").mkdir()
        self.log = self._stack.enter_context((self.folder / "driver.log").open("ab"))
        self._variables = {"TMPDIR": str(self.temporary)} if self.opens is None else {}
        places = self._servers()
        places.write(self.folder / "places.json")
        send = sending(places.broker, places.topics) if places.topics else None
        self.load = Load(self._seed, None if send else self.folder / "in", send)
        if any(job.follows for job in self.jobs):
            self.load.copy = self._copy
        self.start_driver()

    def _mount(self, folder: Path, size: str) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True, timeout=20)
        self._stack.callback(partial(subprocess.run, ["umount", "-l", folder], check=False, timeout=20))

    def _servers(self) -> Places:
        given: dict[str, str] = {
            "jobs": " ".join(job.name for job in self.jobs),
            "root": str(self.folder),
            "out": str(self.out),
            "store": str(self.out),
        }
        local = LocalFileSystem()
        for job in self.jobs:
            self._found[job.name] = partial(oracle.of_files, local, str(self.out / job.name))
        if "outer" in self._found:
            self._found["outer"] = partial(oracle.of_delta, str(self.out / "outer"))
        if "lake" in self._found:
            self._found["lake"] = partial(oracle.of_delta, str(self.out / "lake"))
        if self.kind == "database":
            given |= self._database()
        elif self.kind == "store":
            given |= self._object_store()
        elif self.kind == "kafka":
            given |= self._topics()
        elif self.kind == "cluster":
            given["master"] = os.environ["CLUSTER_MASTER"]
        return Places(**given)

    def _database(self) -> Mapping[str, str]:
        self.server = server = self._stack.enter_context(postgres_server(settings=("wal_level=logical",)))
        self.line = self._stack.enter_context(relay(server.port))
        secret = self.folder / "secret"
        secret.write_text(server.password)
        for name in CHANGING_STREAMS:
            server.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, v bigint, ts bigint)")
        for job in self.jobs:
            server.execute(f"CREATE TABLE {job.target} (id bigint PRIMARY KEY, v bigint, w bigint)")
            self._found[job.name] = partial(oracle.of_database, server, job.target)
        return {"url": f"jdbc:postgresql://127.0.0.1:{self.line.port()}/postgres", "secret": str(secret)}

    def _object_store(self) -> Mapping[str, str]:
        self.line, variables = self._stack.enter_context(object_store())
        direct = f"http://127.0.0.1:{self.line.server_port()}"
        self._variables |= variables
        self._store = S3FileSystem(
            endpoint_override=direct, access_key="writer", secret_key="not-a-secret", region="us-east-1"
        )
        self._found["left"] = partial(oracle.of_files, self._store, f"{BUCKET}/out/left")
        options = {
            **{name: value for name, value in variables.items() if name != "AWS_ENDPOINT_URL"},
            "AWS_ENDPOINT_URL": direct,
        }
        self._found["outer"] = partial(oracle.of_delta, f"s3://{BUCKET}/out/outer", options)
        return {
            "checkpoints": f"{store_url()}/checkpoints",
            "out": f"{store_url()}/out",
            "store": f"s3://{BUCKET}/out",
        }

    def _copy(self, name: str, rows: list[Row]) -> None:
        """Keep the newest row of each key in a table, by transactions of a few changes."""
        assert self.server is not None
        if name in CHANGING_STREAMS:
            for start in range(0, len(rows), 5):
                newer = "ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v, ts = EXCLUDED.ts WHERE EXCLUDED.ts >= {}.ts"
                self.server.execute(
                    *(
                        f"INSERT INTO {name} VALUES ({id}, {'NULL' if v is None else v}, {ts}) {newer.format(name)}"
                        for id, v, ts in rows[start : start + 5]
                    )
                )

    def _topics(self) -> Mapping[str, str]:
        self.broker = broker = self._stack.enter_context(kafka_broker())
        topics = f"t{uuid.uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        names = [f"{topics}-{name}" for name in (*APPEND_ONLY, "out")]
        for created in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
            created.result(60)
        self._found["topic"] = partial(oracle.of_topic, broker.address, f"{topics}-out")
        return {"broker": broker.address, "topics": topics}


def _all(folder: str) -> FileSelector:
    return FileSelector(folder, allow_not_found=True)


def wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    """Wait until something holds, at most so many seconds; whether it does."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def say(text: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
