"""Whether all that a checkpoint consists of is what was written, found out by reading all of it.

Nothing stops at the first fault: each part is read by itself, and what is wrong is noted with its place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from watersmeet.engine.control_events import Event
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.hot_key_files import keys_in
from watersmeet.runtime.inspection.described import operators_of
from watersmeet.runtime.inspection.files import Files
from watersmeet.runtime.inspection.hadoop_checksums import checksum_name, fits, is_checksum
from watersmeet.runtime.inspection.stored_query import (
    committed,
    epoch_file,
    open_partitions,
    read_plan,
    read_query,
    runs_of,
)
from watersmeet.runtime.pieces import SUFFIX, decoded
from watersmeet.runtime.plan_file import PlanFile
from watersmeet.settings.query_settings import REAL_TIME
from watersmeet.state.epoch_store import EpochStore
from watersmeet.state.segments import segment_values
from watersmeet.state.spark_store.partition import Partition

T = TypeVar("T")
_ATTEMPTS = 3
_RESTORE = "restore the file from a copy"
_LOGS = ("offsets", "commits")
#: No result depends on these.
_FOR_PEOPLE = ("counters.json", "failure.log")


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is damaged: where, what, and what to do."""

    where: str
    what: str
    then: str


@dataclass(slots=True)
class Verified:
    """What was read of a checkpoint, and what is wrong with it."""

    checkpoint: str
    faults: list[Fault] = field(default_factory=list)
    files: int = 0
    nbytes: int = 0
    segments: int = 0
    rows: int = 0


def verify(folder: str) -> Verified:
    """Read all of a checkpoint.  If a query that runs deletes what is being read, all is read again."""
    for _ in range(_ATTEMPTS - 1):
        before = _progress(folder)
        found = _verified(folder)
        if not found.faults or _progress(folder) == before:
            return found
    return _verified(folder)


def _progress(folder: str) -> object:
    files = Files(folder)
    try:
        plan = read_plan(files)
        return plan.generation, committed(files, plan)
    except WatersmeetError:
        return None


def _verified(folder: str) -> Verified:
    files = Files(folder)
    found = Verified(files.folder)
    plan = _checked(found, f"{files.folder}/plan.json", lambda: read_plan(files))
    if plan is None:
        _check_bytes(files, found)
        return found
    _checked(found, f"{files.folder}/plan.json", lambda: operators_of(plan.operators, f"{files.folder}/plan.json"))
    _check_bytes(files, found)
    _check_logs(files, plan, found)
    for name in files.names("control"):
        text = files.read_text(f"control/{name}") or ""
        _checked(found, f"{files.folder}/control/{name}", partial(Event.from_json, text))
    _check_hot_keys(files, found)
    _check_pieces(files, found)
    _check_state(files, plan, found)
    return found


def _checked(found: Verified, where: str, work: Callable[[], T]) -> T | None:
    """Do some reading; what it raises is a fault, unless it was found before."""
    try:
        return work()
    except WatersmeetError as error:
        fault = Fault(where, error.message, error.hint or _RESTORE)
        if all(fault.what != known.what for known in found.faults):
            found.faults.append(fault)
        return None


def _check_bytes(files: Files, found: Verified) -> None:
    """Compare all files with the checksums that Hadoop has noted beside them."""
    infos = [info for info in files.infos(recursive=True) if info.is_file]
    names = {str(info.path): info for info in infos}
    for info in infos:
        if is_checksum(info.base_name) or _is_left_over(info.base_name):
            continue
        found.files += 1
        found.nbytes += info.size or 0
        beside = f"{info.path.rpartition('/')[0]}/{checksum_name(info.base_name)}"
        if beside not in names or info.base_name in _FOR_PEOPLE:
            continue
        inner = info.path.removeprefix(f"{files.root}/")
        stored = files.read(beside.removeprefix(f"{files.root}/"))
        content = files.read(inner)
        # a file that is gone was of an older batch: what is needed is looked for below
        if content is not None and stored is not None and not fits(content, stored):
            what = f"{files.folder}/{inner} does not fit the checksum that Hadoop has written beside it"
            found.faults.append(Fault(f"{files.folder}/{inner}", what, _RESTORE))


def _is_left_over(name: str) -> bool:
    """Whether a file is one that Spark has not renamed yet: its writer works on it, or was killed."""
    return name.startswith(".") and name.endswith(".tmp")


def _check_logs(files: Files, plan: PlanFile, found: Verified) -> None:
    """Check Spark's own logs: none is missing between two others, and each can be read."""
    spark = f"{files.folder}/{plan.spark}"
    if not files.exists(plan.spark):
        if plan.batches_before or files.exists("epochs"):
            found.faults.append(Fault(spark, f"{spark} is missing", "restore the folder from a copy"))
        return
    metadata = _json_of(files.read(f"{plan.spark}/metadata") or b"")
    if not isinstance(metadata, dict) or "id" not in metadata:
        found.faults.append(Fault(f"{spark}/metadata", f"{spark}/metadata does not hold the query's id", _RESTORE))
    numbers = {log: files.numbers(f"{plan.spark}/{log}") for log in _LOGS}
    for log in _LOGS:
        for number in numbers[log]:
            path = f"{plan.spark}/{log}/{number}"
            if not _is_log(files.read(path)):
                found.faults.append(
                    Fault(f"{spark}/{log}/{number}", f"{spark}/{log}/{number} is not an entry of Spark's log", _RESTORE)
                )
    for log, missing in _missing(numbers["offsets"], numbers["commits"]):
        found.faults.append(Fault(f"{spark}/{log}/{missing}", f"{spark}/{log}/{missing} is missing", _RESTORE))


def _missing(offsets: list[int], commits: list[int]) -> Iterator[tuple[str, int]]:
    """Yield entries that must be there: all between two others, and the offsets of the last committed batch."""
    for log, numbers in zip(_LOGS, (offsets, commits), strict=True):
        for number in range(numbers[0] if numbers else 0, numbers[-1] if numbers else 0):
            if number not in numbers:
                yield log, number
    # Spark compares a batch with the one before it
    for number in range(max(0, commits[-1] - 1), commits[-1] + 1) if commits else ():
        if number not in offsets and (not offsets or number < offsets[0] or number > offsets[-1]):
            yield "offsets", number
    if offsets and (commits[-1] if commits else -1) < offsets[-1] - 1:
        yield "commits", offsets[-1] - 1


def _is_log(content: bytes | None) -> bool:
    """Whether an entry begins with its version, and holds JSON or ``-`` in each further line."""
    try:
        first, *lines = (content or b"").decode().split("\n")
    except UnicodeDecodeError:
        return False
    return (
        first[:1] == "v"
        and first[1:].isdecimal()
        and all(line in ("", "-") or _json_of(line) is not None for line in lines)
    )


def _json_of(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _check_hot_keys(files: Files, found: Verified) -> None:
    for info in files.infos("hot_keys", recursive=True):
        if info.is_file and info.extension == "json" and not info.base_name.startswith("."):
            inner = info.path.removeprefix(f"{files.root}/")
            folder, _, name = inner.rpartition("/")
            number = name.removesuffix(".json")
            if number.isdecimal():
                text = files.read_text(inner) or ""
                where = f"{files.folder}/{folder}"
                _checked(found, f"{files.folder}/{inner}", partial(keys_in, text, where, int(number)))


def _check_pieces(files: Files, found: Verified) -> None:
    """Read what waits of databases' logs."""
    for info in files.infos("pieces", recursive=True):
        if info.is_file and info.base_name.endswith(SUFFIX) and not info.base_name.startswith("."):
            inner = info.path.removeprefix(f"{files.root}/")
            where = f"{files.folder}/{inner}"
            content = files.read(inner)
            if content is not None:
                _checked(found, where, partial(decoded, content, where))


def _check_state(files: Files, plan: PlanFile, found: Verified) -> None:
    """Read the state after the last committed batch: files of the store, manifests, segments."""
    batch = committed(files, plan)
    if batch is None:
        return
    if plan.mode == REAL_TIME:
        _checked(found, f"{files.folder}/{plan.epochs}", lambda: _check_epochs(files, plan, batch, found))
    else:
        _checked(found, f"{files.folder}/{plan.spark}/state", lambda: _check_store(files, plan, batch, found))
    query = _checked(found, files.folder, lambda: read_query(files.folder))
    for bucket in query.buckets if query is not None else ():
        for segment in bucket.manifest.segments:
            where = f"{files.folder}: {bucket.operator.name}, bucket {bucket.number}, segment {segment.id}"
            if _checked(found, where, partial(segment_values, bucket, segment)):
                found.segments += 1
                found.rows += segment.rows


def _check_store(files: Files, plan: PlanFile, batch: int, found: Verified) -> None:
    for operator in files.numbers(f"{plan.spark}/state"):
        for number in files.numbers(f"{plan.spark}/state/{operator}"):
            folder = files.path(f"{plan.spark}/state/{operator}/{number}")
            partition = _checked(found, folder, partial(Partition, files.filesystem, folder, batch + 1))
            for path, each in partition.checks() if partition is not None else ():
                _checked(found, path, each.check)
    open_partitions(files, plan, batch)


def _check_epochs(files: Files, plan: PlanFile, batch: int, found: Verified) -> None:
    runs_of(files, plan)
    file = epoch_file(files, plan, batch)
    folders = sorted(
        {
            info.path.rpartition("/")[0].removeprefix(f"{files.root}/")
            for info in files.infos(plan.epochs, recursive=True)
            if info.base_name.endswith(".state")
        }
    )
    for folder in folders:
        store = _checked(found, f"{files.folder}/{folder}", partial(EpochStore, f"{files.folder}/{folder}", file))
        if store is not None:
            for name in store.names:
                _checked(found, f"{files.folder}/{folder}", partial(store.get, name))
