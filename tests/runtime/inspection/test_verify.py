"""`watersmeet checkpoint verify` finds whatever has changed; `copy` makes whole copies, and leaves all as it is."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow.fs
import pytest
from typer.testing import CliRunner

from tests.runtime.inspection.checkpoints import LIVE, MICRO_BATCHES, unpack_micro_batches, write_live
from watersmeet.cli.main import app
from watersmeet.engine.hot_keys import Entry
from watersmeet.runtime import hot_key_files
from watersmeet.runtime.inspection.stored_query import read_query
from watersmeet.runtime.inspection.verify import verify

RUNNER = CliRunner()
MAKE: dict[str, Callable[[Path], Path]] = {"micro": unpack_micro_batches, "live": write_live}
#: Files whose loss is noticed: those that the last batch needs.
NEEDED = {
    "micro": ["plan.json", "spark/metadata", "spark/commits/1", "spark/offsets/2", "spark/state/0/0/1.zip",
              "spark/state/0/1/2.changelog", "spark/state/0/0/SSTs/*.sst", "spark/state/0/1/3.changelog"],
    "live": ["plan.json", "spark/metadata", "spark/offsets/0", "epochs/runs/000000.json",
             "epochs/operators/join_1/0/000000000-000000.state", "epochs/operators/join_1/3/000000001-000000.state"],
}  # fmt: skip


def hidden_checksums(path: Path) -> list[Path]:
    return list(path.rglob(".*.crc"))


def flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("kind", MAKE)
def test_what_was_written_is_whole(tmp_path: Path, kind: str) -> None:
    path = MAKE[kind](tmp_path)
    found = verify(str(path))
    assert found.faults == []
    assert (found.segments, found.rows) == {"micro": (8, 147), "live": (4, 8)}[kind]


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in NEEDED.items() for name in names])
def test_a_missing_file_is_named(tmp_path: Path, kind: str, name: str) -> None:
    path = MAKE[kind](tmp_path)
    (file,) = path.glob(name)
    file.unlink()
    faults = verify(str(path)).faults
    assert any(file.name in fault.what or str(file.parent) in fault.what for fault in faults), faults
    assert all(fault.then for fault in faults)


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("checksums", [True, False])
def test_a_flipped_byte_in_any_file_of_the_state_is_found(tmp_path: Path, kind: str, checksums: bool) -> None:
    path, chance = MAKE[kind](tmp_path), random.Random(7)
    if not checksums:  # lost by a copy without hidden files
        for file in hidden_checksums(path):
            file.unlink()
    state = path / ("spark/state/0" if kind == "micro" else "epochs")
    files = [file for file in state.rglob("*") if file.suffix in (".zip", ".changelog", ".sst", ".state", ".json")]
    files = [file for file in files if not file.name.startswith(("1.changelog", "."))]  # older than the snapshot
    assert len(files) >= 5
    for file in files:
        whole = file.read_bytes()
        # a table ends with zeros, an archive with its list; what stands there decides nothing
        for at in (0, *(chance.randrange(len(whole) // 2) for _ in range(3))):
            flip(file, at)
            is_found = bool(verify(str(path)).faults)
            assert is_found or (not checksums and file.suffix == ".zip"), (file, at)
            file.write_bytes(whole)
    assert verify(str(path)).faults == []


def test_what_a_killed_writer_left_is_no_fault(tmp_path: Path) -> None:
    path = unpack_micro_batches(tmp_path)
    folder = path / "spark/state/0/1"
    (folder / ".2.changelog.1b2c.TID7.tmp").write_bytes((folder / "2.changelog").read_bytes()[:-3])
    (folder / "..2.changelog.1b2c.TID7.tmp.crc").write_bytes((folder / ".2.changelog.crc").read_bytes())
    assert verify(str(path)).faults == []


@pytest.mark.parametrize("name", ["spark/offsets/1", "spark/commits/2"])
def test_a_flipped_byte_in_a_log_of_spark_is_found(tmp_path: Path, name: str) -> None:
    path = unpack_micro_batches(tmp_path)
    file = path / name
    flip(file, 5)
    assert [fault.where for fault in verify(str(path)).faults] == [str(file)]


@pytest.mark.parametrize("content", [b"", b"v1\n{", b"\xff\xfe", b"{}"])
def test_an_entry_that_is_no_entry_is_found(tmp_path: Path, content: bytes) -> None:
    path = write_live(tmp_path)
    (path / "spark/offsets/1").write_bytes(content)
    (fault,) = verify(str(path)).faults
    assert fault.what.endswith("spark/offsets/1 is not an entry of Spark's log")


def test_damaged_events_and_hot_keys_are_found(tmp_path: Path) -> None:
    path = write_live(tmp_path)
    flip(path / "control/000000000000.json", 12)
    (path / "hot_keys/id/join_1-f").mkdir(parents=True)
    (path / "hot_keys/id/join_1-f/3.json").write_text("{}")
    assert [Path(fault.where).name for fault in verify(str(path)).faults] == ["000000000000.json", "3.json"]


def test_the_command_ends_with_1_if_anything_is_damaged(tmp_path: Path) -> None:
    queries = tmp_path / "queries"
    queries.mkdir()
    unpack_micro_batches(queries)
    path = write_live(queries)
    done = RUNNER.invoke(app, ["checkpoint", "verify", "-w", str(tmp_path)])
    assert (done.exit_code, done.stdout.count(" is whole: ")) == (0, 2)
    flip(path / "epochs/operators/join_1/0/000000000-000000.state", 30)
    done = RUNNER.invoke(app, ["checkpoint", "verify", "-w", str(tmp_path)])
    assert (done.exit_code, done.stdout.count(" is whole: ")) == (1, 1)
    assert "live is damaged: " in done.stdout
    assert "000000000-000000.state is damaged: a value is not what was written" in done.stdout
    empty = RUNNER.invoke(app, ["checkpoint", "verify", "-w", str(tmp_path / "nowhere")])
    assert (empty.exit_code, "there is no checkpoint in" in empty.stderr) == (1, True)


# -- copies ------------------------------------------------------------------------------------------------------------


def everything(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.mark.parametrize(("kind", "name"), [("micro", MICRO_BATCHES), ("live", LIVE)])
def test_a_copy_is_whole_and_has_ids_of_its_own(tmp_path: Path, kind: str, name: str) -> None:
    queries = tmp_path / "queries"
    queries.mkdir()
    path = MAKE[kind](queries)
    before = everything(path)
    target = tmp_path / "savepoint"
    done = RUNNER.invoke(app, ["checkpoint", "copy", name, str(target), "-w", str(tmp_path)])
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"copied {name} as of batch {2 if kind == 'micro' else 1}: " in done.stdout
    assert everything(path) == before
    old, new = read_query(str(path)), read_query(str(target / name))
    assert [bucket.manifest for bucket in old.buckets] == [bucket.manifest for bucket in new.buckets]
    assert new.plan.id != old.plan.id
    ids = [json.loads((each / "spark/metadata").read_text())["id"] for each in (path, target / name)]
    assert ids[0] != ids[1]
    if kind == "micro":
        described = (target / name / "spark/state/0/_metadata/v2/0").read_text()
        assert f'["file:{target / name}/spark/state/0/_stateSchema/default/' in described
    again = RUNNER.invoke(app, ["checkpoint", "copy", name, str(target), "-w", str(tmp_path)])
    assert (again.exit_code, "holds files already" in again.stderr) == (1, True)
    inside = RUNNER.invoke(app, ["checkpoint", "copy", name, f"{path}/side/..", "-w", str(tmp_path)])
    assert (inside.exit_code, "is in the checkpoint that is copied" in inside.stderr) == (1, True)
    assert everything(path) == before


def test_what_was_planned_after_the_batch_is_copied_too(tmp_path: Path) -> None:
    path = write_live(tmp_path / "queries")
    (path / "spark/commits/1").unlink()
    for file in path.rglob("000000001-000000.state"):
        file.unlink()
    done = RUNNER.invoke(app, ["checkpoint", "copy", LIVE, str(tmp_path / "copy"), "-w", str(tmp_path)])
    assert "copied live as of batch 0: " in done.stdout
    assert "batch 1 was planned and not committed" in done.stderr
    assert (tmp_path / "copy/live/spark/offsets/1").exists()


def test_the_hot_keys_of_a_copy_have_its_id(tmp_path: Path) -> None:
    path = write_live(tmp_path / "queries")
    (id,) = [json.loads((path / "spark/metadata").read_text())["id"]]
    for batch in (1, 2):
        hot_key_files._write(
            pyarrow.fs.LocalFileSystem(),
            str(path / "hot_keys" / id / "join_1-f"),
            hot_key_files._File("run", [1], Entry(batch, {})),
        )
    RUNNER.invoke(app, ["checkpoint", "copy", LIVE, str(tmp_path / "copy"), "-w", str(tmp_path)])
    (copied,) = (tmp_path / "copy/live/hot_keys").rglob("*.json")
    new = json.loads((tmp_path / "copy/live/spark/metadata").read_text())["id"]
    assert copied.relative_to(tmp_path / "copy/live/hot_keys") == Path(new, "join_1-f", "1.json")
    assert verify(str(tmp_path / "copy/live")).faults == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing", "copy"], "there is no query nothing in"),
        ([LIVE, ""], "DEST names no folder"),
    ],
)
def test_what_cannot_be_copied_is_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    write_live(tmp_path / "queries")
    done = RUNNER.invoke(app, ["checkpoint", "copy", *arguments, "-w", str(tmp_path)])
    assert (done.exit_code, said in done.stderr) == (2 if arguments[1] == "" else 1, True)


def test_a_query_without_a_batch_is_not_copied(tmp_path: Path) -> None:
    path = write_live(tmp_path / "queries")
    for file in (path / "spark/commits").iterdir():
        file.unlink()
    done = RUNNER.invoke(app, ["checkpoint", "copy", LIVE, str(tmp_path / "copy"), "-w", str(tmp_path)])
    assert (done.exit_code, "has been committed: there is nothing to copy" in done.stderr) == (1, True)


def test_a_damaged_checkpoint_is_not_copied(tmp_path: Path) -> None:
    path = write_live(tmp_path / "queries")
    flip(path / "epochs/operators/join_1/0/000000000-000000.state", 30)
    done = RUNNER.invoke(app, ["checkpoint", "copy", LIVE, str(tmp_path / "copy"), "-w", str(tmp_path)])
    assert (done.exit_code, "is damaged" in done.stderr) == (1, True)
    assert not (tmp_path / "copy" / LIVE / "plan.json").exists()
