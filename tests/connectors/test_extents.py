"""What connectors say there is to read: bytes of files and of Delta tables, offsets of topics."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from deltalake import write_deltalake

from tests.connectors.test_kafka_ranges import Admin
from tests.support.delta_tables import IDS, ids
from watersmeet.connectors.delta import extent as delta_extent
from watersmeet.connectors.delta.changes import Begin, Changes, Place
from watersmeet.connectors.delta.extent import TableFiles
from watersmeet.connectors.delta.log import DeltaLog
from watersmeet.connectors.delta.schema import Declared
from watersmeet.connectors.folder_files import FolderFiles, files_measure
from watersmeet.connectors.kafka import ranges as kafka_ranges
from watersmeet.connectors.kafka.ranges import Topic, TopicRecords, topic_measure
from watersmeet.errors import ConnectorError


class Local:
    """A storage of local folders, or of ones that workers do not reach."""

    def __init__(self, *, is_reached: bool = True) -> None:
        self._is_reached = is_reached

    def uri(self, path: str) -> str:
        return f"file:{path}"

    def worker_path(self, path: str) -> str | None:
        return path if self._is_reached else None


def listed(folder: Path, **options: object) -> FolderFiles:
    found = files_measure(Local, str(folder), **options).take()  # type: ignore[arg-type]
    assert isinstance(found, FolderFiles)
    return found


def test_a_folder_has_the_files_that_spark_reads(tmp_path: Path) -> None:
    for name, size in {"a b.json": 3, "b.json": 4, "_c.json": 5, ".d.json": 6, "e._COPYING_": 7, "f.txt": 8}.items():
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / "folder").mkdir()
    assert dict(listed(tmp_path).sizes) == {"a b.json": 3, "b.json": 4, "f.txt": 8}
    assert dict(listed(tmp_path, is_read=lambda name: name[0] == "b").sizes) == {"b.json": 4}
    assert dict(listed(tmp_path / "missing").sizes) == {}


def test_of_partitions_and_of_what_only_spark_reaches_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "day=1").mkdir()
    with pytest.raises(ConnectorError, match="has partitions"):
        listed(tmp_path)
    with pytest.raises(ConnectorError, match="only Spark reaches"):
        files_measure(partial(Local, is_reached=False), str(tmp_path)).take()  # type: ignore[arg-type]


def test_files_are_ahead_that_the_log_does_not_list() -> None:
    files = FolderFiles({"a": 1, "b": 10, "c": 100})
    log = {0: {"a"}, 1: {"a", "b", "gone"}}
    assert [files.ahead(place, log.__getitem__) for place in (None, {"logOffset": 0}, {"logOffset": 1})] == [
        111,
        110,
        100,
    ]


def test_a_source_of_files_is_known_by_its_folder(tmp_path: Path) -> None:
    measure = files_measure(Local, "/data/o")  # type: ignore[arg-type]
    assert measure.is_of({"description": "FileStreamSource[file:/data/o]"})
    assert not measure.is_of({"description": "FileStreamSource[file:/data/o2]"})


def table_of(folder: Path, first: int) -> TableFiles:
    """A table of four versions of one file each, as an extent that begins with its snapshot at one."""
    for number in range(4):
        write_deltalake(folder, IDS.empty_table().from_pylist(ids(*range(10**number)), IDS), mode="append")
    log = DeltaLog(str(folder), "the table")
    changes = Changes(log, Declared(IDS, "d", log.shown, changes=False, known=3))
    return TableFiles(Place.first(log.about().metadata.id, "d", Begin(first, snapshot=True)), changes, 3)


@pytest.mark.parametrize("first", [1, 3])
def test_of_a_delta_table_the_files_are_ahead_that_were_not_read(tmp_path: Path, first: int) -> None:
    table = table_of(tmp_path, first)
    begin = table.first
    sizes = [size for _, size in table.changes.files(begin, replace(begin, version=4, snapshot=False))]
    assert sum(sizes) == sum(path.stat().st_size for path in tmp_path.glob("*.parquet"))
    assert len(sizes) == 4
    places = [replace(begin, file=number) for number in range(first + 1)]  # within the snapshot
    places += [replace(begin, version=number, snapshot=False) for number in range(first + 1, 5)]
    assert [table.ahead(place.encoded(), lambda _: ()) for place in places] == [sum(sizes[n:]) for n in range(5)]
    assert table.ahead(None, lambda _: ()) == sum(sizes)
    later = replace(begin, version=9, snapshot=False)
    assert table.ahead(later.encoded(), lambda _: ()) == 0


def test_a_resumed_query_lists_a_table_from_where_it_stands(tmp_path: Path) -> None:
    table = table_of(tmp_path, 0)
    place = replace(table.first, version=3, snapshot=False)
    assert table.ahead(place.encoded(), lambda _: ()) > 0
    assert len(table._keys) == 1


def test_of_too_many_versions_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(tmp_path, 0)
    monkeypatch.setattr(delta_extent, "_MOST_VERSIONS", 2)
    with pytest.raises(ConnectorError, match="more than 2 versions lie ahead"):
        table.ahead(None, lambda _: ())


@pytest.mark.parametrize(
    ("place", "ahead"),
    [(None, 95 + 30), ({"t": {"0": 100, "1": 0}}, 30), ({"t": {"0": 40}}, 60 + 30), ({"t": {"0": 120, "1": 99}}, 0)],
)
def test_of_a_topic_the_offsets_are_ahead(place: dict[str, dict[str, int]] | None, ahead: int) -> None:
    assert TopicRecords("t", {"0": 5, "1": 0}, {"0": 100, "1": 30}).ahead(place, lambda _: ()) == ahead


def test_a_topic_is_measured_from_where_the_query_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_ranges, "AdminClient", lambda settings: Admin({0: 24, 1: 30}))
    measure = topic_measure(Topic("t", {}, {0: 20}))
    assert measure.take() == TopicRecords("t", {"0": 20, "1": 30}, {"0": 24, "1": 30})
    assert measure.is_of({"endOffset": '{"t": {"0": 24}}'})
    assert not measure.is_of({"endOffset": {"u": {"0": 24}}})
    assert not measure.is_of({"endOffset": None})
