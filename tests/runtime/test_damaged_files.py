"""Files of a checkpoint that still can be read, but are not what was written: each is refused, and says which it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow.fs
import pytest

from tests.fuzzing.stored_queries import LocalFiles
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.engine.hot_keys import Entry, HotKey, Phase
from watersmeet.errors import CheckpointError
from watersmeet.runtime import hot_key_files
from watersmeet.runtime.checkpoint import Checkpoint
from watersmeet.runtime.plan_file import PlanFile
from watersmeet.runtime.real_time.epochs import RunStart
from watersmeet.runtime.real_time.run_log import RunLog
from watersmeet.runtime.storage import Storage

LOCAL = cast("Storage", LocalFiles())
FILESYSTEM = pyarrow.fs.LocalFileSystem()
KEYS = {7: HotKey(1, Phase.SPREAD, 100)}


def checkpoint(folder: Path) -> Checkpoint:
    return Checkpoint(LOCAL, str(folder))


def write_plan(folder: Path) -> None:
    checkpoint(folder).write_plan(PlanFile(buckets=(0, 3)))


def write_events(folder: Path) -> None:
    checkpoint(folder).write_event(Event(EventKind.ADVANCE, frontier=100))


def write_runs(folder: Path) -> None:
    for run in range(2):
        RunLog(LOCAL, checkpoint(folder), None).add(run, RunStart(first=run))


def write_hot_keys(folder: Path) -> None:
    for operator in ("join_1", "join_2"):
        file = hot_key_files._File("run", [1], Entry(3, KEYS))
        hot_key_files._write(FILESYSTEM, str(folder / "query" / operator), file)


#: What writes files, one of them, what reads it, a member of it, and another value of that.
FILES: dict[str, tuple[Callable[[Path], None], str, Callable[[Path], Any], str, Any]] = {
    "plan": (write_plan, "plan.json", lambda folder: checkpoint(folder).read_plan(), "sealed", True),
    "event": (
        write_events,
        "control/000000000000.json",
        lambda folder: checkpoint(folder)._read_event(0),
        "frontier",
        200,
    ),
    "run": (
        write_runs,
        "epochs/runs/000001.json",
        lambda folder: RunLog(LOCAL, checkpoint(folder), None).read()[1],
        "first",
        2,
    ),
    "hot keys": (
        write_hot_keys,
        "query/join_1/3.json",
        lambda folder: hot_key_files._read(FILESYSTEM, str(folder / "query" / "join_1"), 3),
        "keys",
        {},
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_another_value_is_refused_and_a_file_of_an_earlier_version_is_read(name: str, tmp_path: Path) -> None:
    write, file, read, member, value = FILES[name]
    write(tmp_path)
    path = tmp_path / file
    expected, content = read(tmp_path), json.loads(path.read_text())
    assert member in content
    path.write_text(json.dumps({**content, member: value}))
    with pytest.raises(CheckpointError, match=path.name) as raised:
        read(tmp_path)
    assert raised.value.hint
    earlier = {
        key: each for key, each in content.items() if key not in ("checksum", "name", "run" if name == "run" else "")
    }
    path.write_text(json.dumps(earlier))
    found = read(tmp_path)
    assert found == (expected.model_copy(update={"run": None}) if isinstance(expected, RunStart) else expected)
    path.write_text(json.dumps({**earlier, "checksun": content["checksum"]}))  # a bit of the checksum's name
    with pytest.raises(CheckpointError, match=path.name):
        read(tmp_path)


@pytest.mark.parametrize(("name", "other"), [("run", "epochs/runs/000000.json"), ("hot keys", "query/join_2/3.json")])
def test_a_file_in_the_place_of_another_is_refused(name: str, other: str, tmp_path: Path) -> None:
    write, file, read, _, _ = FILES[name]
    write(tmp_path)
    (tmp_path / file).write_bytes((tmp_path / other).read_bytes())
    with pytest.raises(CheckpointError, match=Path(file).name):
        read(tmp_path)
