"""Damaged checkpoints: a query goes on with exactly the results that it would have had, or says what is damaged."""

from __future__ import annotations

import random
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import pyarrow.fs

from tests.fuzzing.catalog import streams
from tests.fuzzing.octets import damaged
from tests.fuzzing.stored_queries import QUERIES, LocalFiles, stored_epochs, stored_query
from watersmeet.catalog.catalog import Catalog
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.engine.hot_keys import Entry, HotKey, Phase
from watersmeet.errors import CatalogError, CheckpointError
from watersmeet.runtime import hot_key_files
from watersmeet.runtime.checkpoint import Checkpoint
from watersmeet.runtime.plan_file import PlanFile
from watersmeet.runtime.real_time.epochs import RunStart
from watersmeet.runtime.real_time.run_log import RunLog
from watersmeet.runtime.storage import DamagedFileError, Storage
from watersmeet.settings.seek import Seek

Attempt = Callable[[random.Random, Path], str | None]
#: What a user reads.  ``Checkpoint`` turns the last one into a ``CheckpointError`` where it expects one.
_REFUSALS = (CheckpointError, CatalogError, DamagedFileError)


def campaign(first: int, count: int) -> tuple[Counter[str], list[str]]:
    """Damage a file or value of each kind for the seeds from ``first`` on; the counts, and the faults."""
    counts: Counter[str] = Counter()
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            faults += [f"seed {seed}, {fault}" for fault in _faults(seed, Path(folder), counts)]
        stored_epochs.cache_clear()
    return counts, faults


def _faults(seed: int, folder: Path, counts: Counter[str]) -> Iterator[str]:
    for name, attempt in _ATTEMPTS.items():
        counts["damaged"] += 1
        try:
            wrong = attempt(random.Random(f"{seed} {name}"), folder / name)
        except _REFUSALS as error:
            counts["refused"] += 1
            if not error.hint and not isinstance(error, DamagedFileError):
                yield f"{name}: no hint: {error}"
        except Exception:  # noqa: BLE001 - that is what this looks for
            yield f"{name}: {traceback.format_exc(limit=-10)}"
        else:
            counts["harmless"] += wrong is None
            if wrong is not None:
                yield f"{name}: {wrong}"


def _changed(rng: random.Random, content: bytes, others: list[bytes]) -> bytes:
    """Other bytes in the place of a file's: damaged ones, none, or those of another file of its kind."""
    draw = rng.random()
    if draw < 0.08:
        return b""
    if draw < 0.2 and others:
        return rng.choice(others)
    return damaged(rng, content, rng.choice(others) if others else b"")


def _state(rng: random.Random, _folder: Path) -> str | None:
    """A value of the state store: a manifest or a segment."""
    query = stored_query(rng.randrange(len(QUERIES)))
    place = rng.choice(sorted(query.values))
    is_segment = place[1].startswith("segment/")
    value = query.values[place]
    if is_segment and rng.random() < 0.05:
        changed = None
    else:
        # a manifest is another bucket's, or another plan's, by its place in the store only
        others = [each for (_, name), each in query.values.items() if is_segment and name.startswith("segment/")]
        changed = _changed(rng, value, others)
    return _compared(query.go_on({place: changed}), query.expected, f"{place} {value!r} became {changed!r}")


def _epochs(rng: random.Random, folder: Path) -> str | None:
    """A file of an epoch of a query in real time."""
    query = stored_epochs(rng.randrange(len(QUERIES)), folder)
    name = rng.choice(query.files)
    contents = [(query.kept / each).read_bytes() for each in query.files]
    value = (query.kept / name).read_bytes()
    changed = None if rng.random() < 0.05 else _changed(rng, value, contents)
    return _compared(query.go_on({name: changed}), query.expected, f"{name} {value!r} became {changed!r}")


def _compared(found: Any, expected: Any, what: str) -> str | None:
    return None if found == expected else f"silently wrong: {what[:1500]}\n{found}\nnot\n{expected}"


# -- files that are read whole -----------------------------------------------------------------------------------------


@cache
def _storage() -> Storage:
    return cast("Storage", LocalFiles())


def _file(
    rng: random.Random,
    folder: Path,
    *,
    write: Callable[[Path], None],
    read: Callable[[Path], Any],
    name: str,
    other: str = "",
) -> str | None:
    """One file among those that ``write`` makes in a folder; what ``read`` returns must not change."""
    if not folder.exists():
        write(folder)
    path = folder / name
    content, expected = path.read_bytes(), read(folder)
    changed = _changed(rng, content, [(folder / other).read_bytes()] if other else [])
    path.write_bytes(changed)
    try:
        return _compared(read(folder), expected, f"{content!r} became {changed!r}")
    finally:
        path.write_bytes(content)


def _checkpoint(folder: Path) -> Checkpoint:
    return Checkpoint(_storage(), str(folder))


def _write_plan(folder: Path) -> None:
    folder.mkdir(parents=True)
    operators = {"join_1": {"input 1": "a: k int32, v string", "buckets": "(0, 3)", "fingerprint": "1f"}}
    _checkpoint(folder).write_plan(
        PlanFile(buckets=(0, 3), operators=operators, seek=Seek(to="time", since=10**15), starts={"c": {41: 7}})
    )


def _write_events(folder: Path) -> None:
    for event in (Event(EventKind.IDLE, ("a",), ("a-1",), observed=12), Event(EventKind.ADVANCE, frontier=10**15)):
        _checkpoint(folder).write_event(event)


def _write_runs(folder: Path) -> None:
    log = RunLog(_storage(), _checkpoint(folder), None)
    log.add(0, RunStart(first=0, positions={"a": {0: 17, 1: 18}}, tasks={"a": 2}))
    log.add(1, RunStart(first=4, positions={"a": {0: 17, 1: 18}}, tasks={"a": 2}))


def _write_hot_keys(folder: Path) -> None:
    keys = {-(2**60): HotKey(1, Phase.SPREAD, 10**15, 3), 5: HotKey(0, Phase.COPIED)}
    for operator in ("join_1", "join_2"):
        file = hot_key_files._File("run", [1, 2], Entry(7, keys))
        hot_key_files._write(pyarrow.fs.LocalFileSystem(), str(folder / "query" / operator), file)


def _read_hot_keys(folder: Path) -> hot_key_files._File:
    return hot_key_files._read(pyarrow.fs.LocalFileSystem(), str(folder / "query" / "join_1"), 7)


def _write_catalog(folder: Path) -> None:
    for name in ("catalog", "other"):
        found = Catalog(folder / name)
        for stream in ("orders", "rates", "customers", "trades"):
            definition = streams()[stream]
            found.add(definition if name == "catalog" else definition.model_copy(update={"delay": 3}))


_ATTEMPTS: dict[str, Attempt] = {
    "state": _state,
    "epochs": _epochs,
    "plan": partial(_file, write=_write_plan, read=lambda folder: _checkpoint(folder).read_plan(), name="plan.json"),
    "events": partial(
        _file,
        write=_write_events,
        read=lambda folder: [_checkpoint(folder)._read_event(number) for number in range(2)],
        name="control/000000000000.json",
    ),
    "runs": partial(
        _file,
        write=_write_runs,
        read=lambda folder: RunLog(_storage(), _checkpoint(folder), None).read(),
        name="epochs/runs/000001.json",
        other="epochs/runs/000000.json",
    ),
    "hot keys": partial(
        _file, write=_write_hot_keys, read=_read_hot_keys, name="query/join_1/7.json", other="query/join_2/7.json"
    ),
    "catalogue": partial(
        _file,
        write=_write_catalog,
        read=lambda folder: Catalog(folder / "catalog").streams(),
        name="catalog/catalog.json",
    ),
}
