"""Files that are damaged or deleted, of a checkpoint and of the input; records of other shapes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.chaos.driver import Ending
from tests.chaos.hits import Fault, Hit, until
from tests.chaos.jobs import Job
from tests.chaos.rig import Rig
from tests.support.killing import Moment

_MOST_SECONDS = 40.0
_LOOK_SECONDS = 0.1


def _numbered(folder: Path, newest: int = 1) -> list[Path]:
    """The files whose names are numbers, the newest of them."""
    found = sorted((path for path in folder.glob("*") if path.name.isdigit()), key=lambda path: int(path.name))
    return found[-newest:]


def _latest(paths: Iterable[Path], most: int) -> list[Path]:
    return sorted(paths, key=lambda path: path.stat().st_mtime)[-most:]


#: The kinds of files of a checkpoint, by what a table calls them.
_KINDS: dict[str, Callable[[Path], list[Path]]] = {
    "plan.json": lambda found: [found / "plan.json"],
    "newest offsets": lambda found: _numbered(found / "spark/offsets"),
    "newest commit": lambda found: _numbered(found / "spark/commits"),
    "Spark's metadata": lambda found: [found / "spark/metadata"],
    "newest list of read files": lambda found: (
        _numbered(found / "spark/sources/0") + _numbered(found / "spark/sources/1")
    ),
    "newest state": lambda found: _latest((found / "spark/state").rglob("*.changelog"), 6),
    "description of the state": lambda found: list((found / "spark/state").rglob("_metadata/**/[!.]*")),
    "sizes of buckets": lambda found: _latest((found / "sizes").rglob("[!.]*.json"), 4),
    "counters.json": lambda found: [found / "counters.json"],
}


_HOW = ("deleted", "emptied", "cut short", "changed by a bit")


@dataclass(slots=True)
class Kept:
    """A file as it was, with Hadoop's checksum beside it; ``damaged`` is what it is now (None: it is gone)."""

    path: Path
    contents: dict[Path, bytes]
    damaged: bytes | None = None

    @staticmethod
    def of(path: Path) -> Kept:
        files = (path, path.with_name(f".{path.name}.crc"))
        return Kept(path, {file: file.read_bytes() for file in files if file.is_file()})

    def restore(self) -> None:
        """Put the file back; not if a job has written it anew, which nobody would replace by an old copy."""
        if (self.path.read_bytes() if self.path.exists() else None) != self.damaged:
            return
        for path, content in self.contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def delete(self) -> None:
        for path in self.contents:
            path.unlink()

    def change(self, change: Callable[[bytes], bytes]) -> None:
        self.damaged = change(self.contents[self.path])
        self.path.write_bytes(self.damaged)


def _damage(rig: Rig, kind: str) -> Hit | None:
    """Stop a job, damage a file of its checkpoint and start it; restore the file once that is refused."""
    job = rig.drawn.choice([job for job in rig.jobs if _KINDS[kind](rig.checkpoint(job))] or rig.jobs)
    rig.driver.stop(job.name)
    found = [path for path in _KINDS[kind](rig.checkpoint(job)) if path.is_file() and path.stat().st_size]
    if not found:
        rig.start(job.name)
        return None
    kept, how = Kept.of(rig.drawn.choice(found)), rig.drawn.choice(_HOW)
    if how == "deleted":
        kept.delete()
    elif how == "emptied":
        kept.change(lambda _: b"")
    elif how == "cut short":
        kept.change(lambda content: content[: rig.drawn.randrange(len(content))])
    else:
        kept.change(lambda content: _flipped(content, rig.drawn.randrange(len(content))))
    rig.damage[job.name].append(kept.restore)
    before = rig.progress()[job.name]
    ending = rig.driver.start(job.name)
    if ending is None:
        ending = _ending(rig, job, lambda: rig.progress()[job.name] != before)
    if ending is not None:
        rig.driver.stop(job.name)
        rig.restore(job.name)
        return Hit(f"{kind} {how} ({job.name}): {kept.path.name}", [ending, *rig.start(job.name)])
    return Hit(f"{kind} {how} ({job.name}): {kept.path.name}")


def _ending(rig: Rig, job: Job, goes_on: Callable[[], bool]) -> Ending | None:
    """How a job ends, if it does not go on."""
    is_over = until(_MOST_SECONDS)
    while not is_over():
        if (ending := rig.driver.status()[job.name]) is not None:
            return ending
        if goes_on():
            return None
        time.sleep(_LOOK_SECONDS)
    return None


def _flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0x20]) + content[at + 1 :]


# -- input -------------------------------------------------------------------------------------------------------------


def _file_gone(rig: Rig, name: str) -> Hit:
    """Delete a file that a batch has planned to read, until the jobs have noticed; then put it back."""
    path = rig.load.path_of(name, rig.load.files)
    rig.load.feed()
    kept = Kept.of(path)
    is_over = until(6)
    Moment.BEGUN.wait(rig.workspace, rig.drawn, is_over)
    path.unlink(missing_ok=True)
    endings = _until_refused(rig, 3)
    kept.restore()
    _keep_age(rig, path)
    return Hit(f"{path.name} of {name} deleted before it was read", endings)


def _damaged_parquet(rig: Rig, how: str) -> Hit:
    """Let a Parquet file be damaged, or have another type, until the jobs notice; then put the right one there."""
    path = rig.load.path_of("p", rig.load.files)
    jobs = [job for job in rig.jobs if "p" in job.reads]
    for job in jobs:
        rig.driver.stop(job.name)
    rig.load.feed()
    kept = Kept.of(path)
    if how == "cut short":
        kept.change(lambda content: content[: len(content) * 2 // 3])
    elif how == "emptied":
        kept.change(lambda _: b"")
    else:
        table = pq.read_table(path)
        other = pa.BufferOutputStream()
        pq.write_table(table.set_column(1, "v", pa.array([f"text {v}" for v in table["v"].to_pylist()])), other)
        kept.change(lambda _: bytes(other.getvalue()))
    _keep_age(rig, path)
    endings: list[Ending] = []
    for job in jobs:
        ending = rig.driver.start(job.name)
        endings += [ending] if ending else []
    endings += _until_refused(rig, 12, len(jobs))
    kept.restore()
    _keep_age(rig, path)
    return Hit(f"{path.name} {how}", endings)


def _keep_age(rig: Rig, path: Path) -> None:
    import os

    number = int(path.stem)
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def _until_refused(rig: Rig, seconds: float, jobs: int = 99) -> list[Ending]:
    """The ends of jobs within some seconds; they stay ended."""
    is_over = until(seconds)
    while not is_over():
        if sum(ending is not None for ending in rig.driver.status().values()) >= jobs:
            break
        time.sleep(_LOOK_SECONDS)
    return []  # the campaign takes the ends up, when it starts the jobs again


def _other_records(rig: Rig, shape: str) -> Hit:
    rig.load.feed(changed=shape)
    return Hit(f"records with {shape}")


FAULTS = (
    *(
        Fault(f"checkpoint damaged: {kind}", ("disk",), partial(_damage, kind=kind), 4, says="CheckpointError: ")
        for kind in _KINDS
    ),
    *(
        Fault(f"file of {name} deleted before it is read", ("disk",), partial(_file_gone, name=name), times=2)
        for name in "op"
    ),
    *(
        Fault(f"Parquet file {how}", ("disk",), partial(_damaged_parquet, how=how), times=1)
        for how in ("cut short", "emptied", "with another type")
    ),
    *(
        Fault(f"records with {shape}", ("disk",), partial(_other_records, shape=shape), times=3, refuses=False)
        for shape in ("more columns", "a column less", "another type")
    ),
)
