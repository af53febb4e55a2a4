"""Rows of epochs that did not commit, taken back from a table."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from tests.connectors.database_tables import batch, table_of
from tests.support.mariadb import MariaDb
from tests.support.postgres import Postgres
from watersmeet.catalog.streams import StreamDef
from watersmeet.connectors.jdbc import connector, void_rows
from watersmeet.connectors.jdbc.sink import open_table
from watersmeet.errors import CheckpointError
from watersmeet.runtime.real_time.sinks import RunName
from watersmeet.testing.harness import load_script

#: User and variable of the password, by server.
LOGINS = {"postgres": ("postgres", "LOOKUP_TEST_PASSWORD"), "mariadb": ("root", "MARIADB_TEST_PASSWORD")}

ROWS = pa.table({"k": pa.array([3], pa.int32()), "v": [30], "_tp_delta": pa.array([1], pa.int8()), "_wm_epoch": [0]})


class Table:
    """A table of SQLite, written by runs of a query."""

    def __init__(self, folder: Path) -> None:
        self.database, self.notes = folder / "t.db", folder / "notes"
        with closing(sqlite3.connect(self.database)) as connection, connection:
            connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v BIGINT)")
        options = f"connector = 'jdbc', url = 'jdbc:sqlite:{self.database}', table = 't'"
        streams, _ = load_script(
            f"CREATE MUTABLE STREAM t (k INT, v BIGINT) PRIMARY KEY (k) WITH ({options});"
            "CREATE STREAM a (k INT); SELECT k FROM a;"
        )
        self.stream: StreamDef = streams["t"]

    def write(self, run: int, epoch: int, *changes: tuple[int, int, int], task: int = 0, dies: bool = False) -> None:
        """Write changes (weight, key, value) of one step; a task that dies has noted them, and no more."""
        weights, keys, values = zip(*changes, strict=True)
        names = {
            "k": pa.array(keys, pa.int32()),
            "v": pa.array(values, pa.int64()),
            "_tp_delta": pa.array(weights, pa.int8()),
        }
        rows = pa.table(names)
        void_rows.journal(str(self.notes), run, epoch, task).note(rows, self.stream)
        if not dies:
            open_table(self.stream).write(rows, epoch, check=self.run(run, {}).refuse_later_run)

    def take_back(self, run: int, firsts: dict[int, int]) -> None:
        connector._take_back(self.stream, self.run(run, firsts))

    def run(self, number: int, firsts: dict[int, int]) -> RunName:
        return RunName("q", number, firsts, str(self.notes), [f"{self.notes}-{number + 1}", f"{self.notes}-rescaled"])

    def rows(self) -> set[tuple[int, int]]:
        with closing(sqlite3.connect(self.database)) as connection:
            return set(connection.execute("SELECT k, v FROM t"))

    def files(self) -> list[str]:
        return sorted(path.name for path in self.notes.glob("*"))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    void_rows.journal.cache_clear()
    return Table(tmp_path)


def test_each_key_gets_the_row_back_that_it_had_when_the_epoch_began(table: Table) -> None:
    table.write(0, 0, (1, 1, 10), (1, 2, 20), (1, 3, 30))
    table.write(0, 1, (-1, 1, 10), (1, 1, 11), (1, 5, 50))
    table.write(0, 1, (-1, 1, 11), (1, 1, 12), (-1, 2, 20))
    table.write(0, 1, (1, 6, 60), (-1, 5, 50), task=1)
    table.write(0, 1, (-1, 3, 30), dies=True)
    assert table.rows() == {(1, 12), (3, 30), (6, 60)}
    table.take_back(1, {0: 0, 1: 1})
    assert table.rows() == {(1, 10), (2, 20), (3, 30)}
    assert table.files() == []


def test_a_run_that_ends_as_the_one_before_is_taken_back_too(table: Table) -> None:
    table.write(0, 0, (1, 1, 10))
    table.write(0, 1, (-1, 1, 10), (1, 1, 11), (1, 2, 20))
    table.take_back(1, {0: 0, 1: 1})
    table.write(1, 1, (-1, 1, 10), (1, 1, 15), (1, 3, 30))
    table.take_back(2, {0: 0, 2: 1})
    assert table.rows() == {(1, 10)}
    table.write(2, 1, (-1, 1, 10), (1, 1, 16))
    table.write(2, 2, (-1, 1, 16), (1, 1, 17), (1, 2, 21))
    table.take_back(3, {0: 0, 2: 1, 3: 2})  # the second run has committed epoch 1
    assert table.rows() == {(1, 16)}


def test_a_crash_while_rows_are_given_back_leaves_the_notes(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.write(0, 0, (1, 1, 10), (-1, 1, 10), (1, 1, 11))
    with monkeypatch.context() as broken:
        broken.setattr(void_rows, "forget", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            table.take_back(1, {1: 0})
    assert table.rows() == set()
    table.write(1, 0, (1, 1, 12))
    table.take_back(2, {2: 0})
    assert table.rows() == set()


def test_notes_of_committed_epochs_go_and_a_file_that_was_cut_off_is_of_no_row(table: Table) -> None:
    table.write(0, 0, (1, 1, 10))
    table.write(0, 1, (1, 2, 20))
    assert [name[:9] for name in table.files()] == ["000000001"]
    (path,) = table.notes.glob("*")
    content = path.read_bytes()
    for length in (0, 10, len(content) - 1):
        path.write_bytes(content[:length])
        assert void_rows.void_rows(table.run(1, {1: 1}), table.stream) is None
    path.write_bytes(content)
    assert void_rows.void_rows(table.run(1, {1: 1}), table.stream) is not None


def test_notes_of_a_committed_epoch_are_not_taken_back_though_their_task_has_written_nothing_since(
    table: Table,
) -> None:
    table.write(0, 0, (1, 1, 10), task=7)
    table.take_back(1, {0: 0, 1: 1})
    assert table.rows() == {(1, 10)}


@pytest.mark.parametrize("successor", [0, 1])
def test_what_is_left_of_a_run_that_is_gone_writes_nothing(table: Table, successor: int) -> None:
    table.write(0, 0, (1, 1, 10))
    Path(table.run(0, {}).successors[successor]).touch()
    begun = "the next run of this query has begun: run 0 writes nothing any more"
    with pytest.raises(CheckpointError, match=begun):
        table.write(0, 0, (-1, 1, 10), (1, 1, 11), (1, 2, 20))
    with pytest.raises(CheckpointError, match=begun):
        connector._write_live(table.stream, table.run(0, {}), ROWS, notes=False)
    assert table.rows() == {(1, 10)}


def test_a_driver_that_stood_still_takes_nothing_back_from_the_next_run(table: Table) -> None:
    table.write(0, 0, (1, 1, 10))
    Path(table.run(1, {}).successors[0]).touch()
    with pytest.raises(CheckpointError, match="run 1 writes nothing any more"):
        table.take_back(1, {1: 0})
    assert table.rows() == {(1, 10)}


@pytest.mark.parametrize("kind", LOGINS)
def test_a_task_of_a_run_that_is_gone_commits_before_its_rows_are_taken_back(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has seen no other run, and commits late: the rows that were there, and one that others cannot see yet."""
    database: Postgres | MariaDb = request.getfixturevalue(kind)
    database.execute("DROP TABLE IF EXISTS sizes", "CREATE TABLE sizes (n bigint PRIMARY KEY, held bigint)")
    database.execute("INSERT INTO sizes VALUES (23, 5)")
    user, variable = LOGINS[kind]
    login = {"user": user, "password": f"${{env:{variable}}}"}
    stream = table_of("n BIGINT, held BIGINT", "n", url=database.url, table="sizes", **login)
    gone, new = RunName("q", 0, {0: 0}, str(tmp_path), ()), RunName("q", 1, {1: 0}, str(tmp_path), ())
    has_written, may_commit = threading.Event(), threading.Event()

    def check(run: RunName) -> None:
        if run is gone:
            has_written.set()
            assert may_commit.wait(30)

    monkeypatch.setattr(RunName, "refuse_later_run", check)
    monkeypatch.setattr(connector, "task_number", lambda: 0)
    void_rows.journal.cache_clear()
    rows = batch(stream, (23, 5, -1), (23, 4, 1), (24, 1, 1))
    with ThreadPoolExecutor() as threads:
        task = threads.submit(
            partial(connector._write_live, notes=True), stream, gone, rows.append_column("_wm_epoch", pa.array([0] * 3))
        )
        assert has_written.wait(30)
        taken = threads.submit(connector._take_back, stream, new)
        assert not wait([taken], timeout=1).done
        may_commit.set()
        task.result(30)
        taken.result(30)
    assert database.execute("SELECT n, held FROM sizes") == [(23, 5)]
